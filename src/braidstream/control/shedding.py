"""Which stored tuples to give up when a slot outgrows its memory and nothing may be spilled (DHTJoin 2.2).

A decision is a *filter* on stored rows, kept in the manifest: for each group a floor time for each store (rows from
before it are dead), and caps (epoch, share): of the rows that arrived until that epoch, only those whose row number, a
random number in [0, 1) made of the row itself, is below the share live on. Arriving tuples are always joined with what
is kept, then stored.

- *oldest*: every window keeps its newest part, the same share of each; floors.
- *random*: every window keeps the same random share of its rows; caps. A slot's cap is one level for all its rows,
  as water fills a vessel: rows that were capped lower before are left alone, so what is kept is a uniform sample of the
  window and not mostly its newest part.
- *sample* (DHTJoin 5, equation 11): as much of what arrives is taken as fits when the window is full of it; the rest is
  neither stored nor joined. So a result needs all its tuples in the sample. What is stored is capped alike.
- *planned*: the same, and of the rest as much is joined, not stored, as keeps the answer at what equation 11 says.
- *unproductive*: groups that give the fewest results for their bytes are emptied one after the other; caps of share 0,
  and one between for the last group.

A *sample* of the keys (1/16 of them, fewer where the full windows of these would take more than a quarter of the
budget) is exempt: `control.estimate` learns from them what the others lose.

Invariants: a dead row stays dead: floors only rise, the cap of rows of an epoch only falls. Deciding is a pure function
of figures. Cost: O(parts of the manifest), in NumPy, a few dozen times for the bisections.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from braidstream.model.dead_rows import Filter, Piece
from braidstream.model.numbers import Address, SlotId
from braidstream.model.values import changed
from braidstream.options import STRATEGIES

__all__ = [
    "MOST_BITS",
    "PLAN_MARGIN",
    "SAMPLE_SHARE",
    "STRATEGIES",
    "Span",
    "Stock",
    "expected_share",
    "live_bytes",
    "shed",
]

SAMPLE_SHARE = 0.25
"""The sample may take this much of the budget; beyond it only a quarter of its keys stay in it."""
MOST_BITS = 20
_STEP = 1.02
"""Caps are powers of this, so that a level that moves a little is not a new cap in every epoch."""
_LEAST_EXPECTED = 0.02
PLAN_MARGIN = 0.02
"""How far above equation 11 who goes by plan aims, so that what is wanted is reached whatever chance does."""
_BY_INTAKE = ("sample", "planned")
_RISING = 1.05
"""The share that is taken rises only if so many times as much would fit, or it would fall again at once."""
_LEAST_INTAKE = 1e-3

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Span:
    """The times of a store's window: from the oldest that may still be joined to the newest."""

    low: int
    high: int


@dataclass(frozen=True)
class Stock:
    """The rows of one store that a group has in one segment."""

    slot: SlotId
    low: Address
    """Where its group begins."""
    store: str
    epoch: int
    """Its rows arrived until then."""
    oldest: int
    newest: int
    bytes: float
    """Of the rows that caps have left."""
    is_sample: bool


def live_bytes(stocks: Sequence[Stock], filter_: Filter, spans: Mapping[str, Span]) -> F64:
    """What lives of each stock: not expired and not below its floor. Times are taken as even within a segment."""
    cuts = [_cut(stock, filter_, spans) for stock in stocks]
    return _column(stocks, "bytes") * _newer(stocks, np.array(cuts, dtype=np.float64))


def expected_share(
    piece: Piece,
    inputs: Sequence[tuple[str, int | None]],
    spans: Mapping[str, Span],
    epoch: int,
    pace_us: float,
) -> float:
    """Which share of a join's results in the next epoch to expect, if tuples come evenly (`completeness_probing`).

    `inputs` are the join's stores and windows, `pace_us` the event time that an epoch covers.
    """
    lengths = [spans[store].high - spans[store].low if window is None else window for store, window in inputs]
    kept = [
        _kept(piece, store, spans[store].high, max(length, 1), epoch, max(pace_us, 1))
        for (store, _), length in zip(inputs, lengths, strict=True)
    ]
    newest = [1 / max(length, 1) for length in lengths]
    others = [float(np.prod(kept[:i] + kept[i + 1 :])) for i in range(len(kept))]
    found = piece.intake * sum(share * rest for share, rest in zip(newest, others, strict=True)) / sum(newest)
    return min(max(found, _LEAST_EXPECTED), 1.0)


def _kept(piece: Piece, store: str, now: int, window_us: float, epoch: int, pace_us: float) -> float:
    """The share of a window that a filter leaves. On average half an epoch of it is too new to have been shed."""
    floor = piece.floors.get(store)
    by_time = 1.0 if floor is None else min(max((now - floor) / window_us, 0.0), 1.0)
    length = max(window_us / pace_us, 1.0)
    begin, left = epoch - length, 0.0
    for until, share in piece.caps:
        left += max(until - begin, 0.0) * share
        begin = max(begin, until)
    by_cap = (left + max(epoch - begin, 0.0)) / length
    kept = by_time * by_cap
    return kept + max(piece.intake - kept, 0.0) * min(0.5 / length, 1.0)


def shed(
    filter_: Filter,
    stocks: Sequence[Stock],
    spans: Mapping[str, Span],
    *,
    budget: float,
    by: str,
    epoch: int,
    yields: Mapping[Address, float],
    n_inputs: int = 2,
) -> Filter:
    """The filter after an epoch. `yields` has for each group, by where it begins, its results for each byte held.

    `n_inputs`: of how many tuples a result is made.
    """
    filter_ = changed(filter_, bits=_bits(filter_, stocks, spans, budget))
    for slot in sorted({stock.slot for stock in stocks}):
        own = [stock for stock in stocks if stock.slot == slot]
        live = live_bytes(own, filter_, spans)
        room = budget - sum(size for size, stock in zip(live, own, strict=True) if stock.is_sample)
        own, live = _without_sample(own, live)
        if by in _BY_INTAKE:
            filter_ = _taken(filter_, own, live, room, epoch, n_inputs if by == "planned" else None)
            continue
        if live.sum() <= room:
            continue
        lows = sorted({stock.low for stock in own})
        if by == "oldest":
            filter_ = _raised(filter_, lows, _floors(own, filter_, spans, room))
        elif by == "random":
            level = _level(own, live, filter_, room)
            filter_ = _capped(filter_, dict.fromkeys(lows, level), epoch)
        else:
            filter_ = _capped(filter_, _emptied(own, live, filter_, room, yields), epoch)
    return filter_


def _bits(filter_: Filter, stocks: Sequence[Stock], spans: Mapping[str, Span], budget: float) -> int:
    """A smaller sample where a slot's would take too much."""
    held: dict[SlotId, float] = {}
    for stock, size in zip(stocks, live_bytes(stocks, filter_, spans), strict=True):
        if stock.is_sample:
            held[stock.slot] = held.get(stock.slot, 0.0) + size
    bits, most = filter_.bits, max(held.values(), default=0.0)
    while most > SAMPLE_SHARE * budget and bits < MOST_BITS:
        most, bits = most / 4, bits + 2
    return bits


def _floors(own: Sequence[Stock], filter_: Filter, spans: Mapping[str, Span], room: float) -> dict[str, int]:
    """The floors at which the newest parts of the windows, the same share of each, fit the room."""
    sizes = _column(own, "bytes")
    now = np.array([_cut(stock, filter_, spans) for stock in own], dtype=np.float64)
    lows, highs = (np.array([getattr(spans[s.store], side) for s in own], dtype=np.float64) for side in ("low", "high"))
    kept, over = 0.0, 1.0
    for _ in range(40):
        share = (kept + over) / 2
        fits = float((sizes * _newer(own, np.maximum(now, highs - share * (highs - lows)))).sum()) <= room
        kept, over = (share, over) if fits else (kept, share)
    return {store: round(span.high - kept * (span.high - span.low)) + 1 for store, span in spans.items()}


def _level(own: Sequence[Stock], live: F64, filter_: Filter, room: float) -> float:
    """The cap at which what is left fits: rows that were capped lower before stay as they are."""
    caps = np.array([filter_.at(stock.low).cap(stock.epoch) for stock in own])
    whole = np.divide(live, caps, out=np.zeros_like(live), where=caps > 0)
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        fits = float((whole * np.minimum(caps, middle)).sum()) <= room
        low, high = (middle, high) if fits else (low, middle)
    return _stepped(low)


def _taken(filter_: Filter, own: Sequence[Stock], live: F64, room: float, epoch: int, n_inputs: int | None) -> Filter:
    """The filter that takes a sample of what arrives; with `n_inputs`, more where equation 11 promises more."""
    if not len(own):
        return filter_
    intakes = np.array([filter_.at(stock.low).intake for stock in own])
    caps = np.array([filter_.at(stock.low).cap(stock.epoch) for stock in own])
    caps = np.where(np.array([stock.epoch for stock in own]) >= epoch, np.minimum(caps, intakes), caps)
    whole = np.divide(live, caps, out=np.zeros_like(live), where=caps > 0)
    now = min(_stored(filter_.at(low)) for low in {stock.low for stock in own})
    fits = min(room / max(float(whole.sum()), 1.0), 1.0)
    share = fits if live.sum() > room or fits > _RISING * now else min(now, 1.0)
    share = 1.0 if share >= 1.0 else max(_stepped(share), _LEAST_INTAKE)
    kept = float((whole * np.minimum(caps, share)).sum() / max(whole.sum(), 1.0))
    taken = share if n_inputs is None else _as_planned(share, kept, n_inputs)
    lows = {stock.low for stock in own}
    pieces = (_taking(piece, epoch, share, taken) if piece.low in lows else piece for piece in filter_.pieces)
    return changed(filter_, pieces=tuple(pieces))


def _stored(piece: Piece) -> float:
    """The share of what arrives that stays; by plan more of it is joined."""
    return min(piece.intake, piece.caps[-1][1] if piece.caps else 1.0)


def _as_planned(share: float, kept: float, n_inputs: int) -> float:
    """The share to join of what arrives: times the shares that are kept of the other windows, equation 11's."""
    wanted = share**n_inputs + PLAN_MARGIN
    return min(max(wanted / max(kept, _LEAST_INTAKE) ** (n_inputs - 1), share), 1.0)


def _taking(piece: Piece, epoch: int, share: float, taken: float) -> Piece:
    cap = min(share, piece.intake)
    return changed(piece.capped(epoch, cap) if cap < 1.0 else piece, intake=taken)


def _emptied(
    own: Sequence[Stock], live: F64, filter_: Filter, room: float, yields: Mapping[Address, float]
) -> dict[Address, float]:
    """The caps of the least productive groups: 0 until the rest fits, and for the last one what room there is."""
    held: dict[Address, float] = {}
    for stock, size in zip(own, live, strict=True):
        held[stock.low] = held.get(stock.low, 0.0) + size
    excess, caps = float(live.sum()) - room, {}
    for low in sorted((low for low in held if held[low] > 0), key=lambda low: (yields.get(low, 0.0), -held[low], low)):
        if excess <= 0:
            break
        mine = [at for at, stock in enumerate(own) if stock.low == low]
        part = [own[at] for at in mine]
        caps[low] = 0.0 if held[low] <= excess else _level(part, live[mine], filter_, held[low] - excess)
        excess -= held[low]
    return caps


def _stepped(share: float) -> float:
    """The next lower power of the step; 0 for what is next to nothing."""
    return 0.0 if share < 1e-6 else float(_STEP ** np.floor(np.log(share) / np.log(_STEP)))


def _raised(filter_: Filter, lows: Iterable[Address], floors: Mapping[str, int]) -> Filter:
    chosen = set(lows)
    pieces = (piece.raised(floors) if piece.low in chosen else piece for piece in filter_.pieces)
    return changed(filter_, pieces=tuple(pieces))


def _capped(filter_: Filter, caps: Mapping[Address, float], epoch: int) -> Filter:
    pieces = (piece.capped(epoch, caps[piece.low]) if piece.low in caps else piece for piece in filter_.pieces)
    return changed(filter_, pieces=tuple(pieces))


def _without_sample(own: Sequence[Stock], live: F64) -> tuple[list[Stock], F64]:
    at = [i for i, stock in enumerate(own) if not stock.is_sample]
    return [own[i] for i in at], live[at]


def _cut(stock: Stock, filter_: Filter, spans: Mapping[str, Span]) -> float:
    """The time from which on its rows live."""
    horizon = spans[stock.store].low
    return horizon if stock.is_sample else max(horizon, filter_.at(stock.low).floors.get(stock.store, horizon))


def _newer(stocks: Sequence[Stock], cuts: F64) -> F64:
    """Which share of each stock's rows is not older than a time."""
    oldest, newest = _column(stocks, "oldest"), _column(stocks, "newest")
    share: F64 = np.clip((newest - cuts + 1) / (newest - oldest + 1), 0.0, 1.0)
    return share


def _column(stocks: Sequence[Stock], name: str) -> F64:
    return np.array([getattr(stock, name) for stock in stocks], dtype=np.float64)
