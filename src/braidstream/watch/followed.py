"""A flow as its history tells it, for whoever watches it: the last epochs as columns, and how things stand now.

One object follows one checkpoint for all who look. `look` reads the files that are new, so a look costs what the new
epochs cost; of slots and groups the present is kept, of epochs the last `KEPT`.

Invariant: it only reads. A flow that is killed is told from one that ended by its last mark: who dies leaves none.
A checkpoint that cannot be read is a state too, not an error: whoever looks again sees it come back.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braidstream.model.values import Json
from braidstream.state.files import Files
from braidstream.state.history import Deciding, HeavyWords, HistoryReader, Share, Words, settled, words_of
from braidstream.state.lease import Owner, last_owner

__all__ = ["KEPT", "Decided", "Epoch", "Followed", "Groups", "Happened", "Standing"]

KEPT = 1000
"""How many epochs are looked at."""
_LOOK_S, _ASK_S = 0.4, 1.0
_RECENT_S = 6.0
"""How long a group that was placed anew is marked."""

I64 = npt.NDArray[np.int64]
Row = dict[str, Json]
"""An entry of the history, by column."""


@dataclass(frozen=True)
class Epoch:
    """One epoch, or a step after it: numbers by the names of `state.history`."""

    epoch: int
    step: int
    at_us: int
    numbers: Mapping[str, float | None]
    rows: Mapping[str, int]
    late: Mapping[str, int]
    watermarks: Mapping[str, int]
    """Newest time less delay, by stream."""
    matches: Mapping[str, int]
    complete: Mapping[str, Share]
    """By query: estimate, low, high."""
    wall_s: float
    """The time since the epoch before; of the first its own."""

    def number(self, name: str) -> float:
        """A number, 0 where it is not known."""
        return float(self.numbers.get(name) or 0.0)

    @property
    def rows_per_s(self) -> float:
        """Rows of all streams by the clock on the wall."""
        return sum(self.rows.values()) / self.wall_s

    @property
    def matches_per_s(self) -> float:
        """Likewise the results of all queries."""
        return sum(self.matches.values()) / self.wall_s


@dataclass(frozen=True)
class Decided:
    """A decision, as it is listed."""

    epoch: int
    at_us: int
    rule: str
    reason: str
    refusal: str
    what: str
    """Its instructions in a few words."""


@dataclass(frozen=True)
class Happened:
    """A start, an end, a query that came or went, a replay, a warning."""

    at_us: int
    epoch: int
    kind: str
    text: str


@dataclass
class Groups:
    """The groups of the present, in the order of their addresses."""

    ids: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    slots: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    stages: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    depths: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    rows: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    matches: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    changed_us: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """When each was last placed anew, in wall time; 0: not since the history began."""

    def placed(self, ids: I64, slots: I64, stages: I64, depths: I64, at_us: int) -> Groups:
        """Another layout; groups that are new, elsewhere or of another size are marked."""
        if not len(self.ids):
            nothing = np.zeros(len(ids), np.int64)
            return Groups(ids, slots, stages, depths, nothing, nothing.copy(), nothing.copy())
        known = {int(one): at for at, one in enumerate(self.ids)}
        at = np.array([known.get(int(one), -1) for one in ids], dtype=np.int64)
        stays = (at >= 0) & (self.slots[at] == slots) & (self.depths[at] == depths)
        old = [np.where(at >= 0, one[at], 0) for one in (self.rows, self.matches, self.changed_us)]
        return Groups(ids, slots, stages, depths, old[0], old[1], np.where(stays, old[2], at_us))

    def load(self, groups: I64, rows: I64, matches: I64) -> None:
        """What the last epochs brought."""
        order = np.argsort(self.ids)
        places = np.searchsorted(self.ids[order], groups)
        there = places < len(order)
        places = order[places[there]]
        fits = self.ids[places] == groups[there]
        self.rows, self.matches = np.zeros(len(self.ids), np.int64), np.zeros(len(self.ids), np.int64)
        self.rows[places[fits]], self.matches[places[fits]] = rows[there][fits], matches[there][fits]

    def is_recent(self, now_us: int) -> npt.NDArray[np.bool_]:
        """Which were placed anew a moment ago."""
        return np.asarray(self.changed_us > now_us - _RECENT_S * 1e6)


@dataclass(frozen=True)
class Standing:
    """Whether a flow runs, and if not, why."""

    state: str
    """ "running", "ended", "closed", "stopped", "failed", "killed", "unreadable" or "unknown"."""
    text: str


class Followed:
    """One checkpoint that is watched."""

    def __init__(self, root: str) -> None:
        self.root, self._files = root, Files(root)
        self._looked = self._asked = 0.0
        self._owner: Owner | None = None
        self._beat_at = 0.0
        self.generation = -1
        """How often all was read anew."""
        self._trouble = ""
        """Why it could not be read the last time."""
        self._reset()

    def _reset(self) -> None:
        self._reader = HistoryReader(self._files)
        self.name, self.version, self.generation = "", 0, self.generation + 1
        self.epochs: deque[Epoch] = deque(maxlen=KEPT)
        self.decisions: deque[Decided] = deque(maxlen=300)
        self.events: deque[Happened] = deque(maxlen=300)
        self.heavy: tuple[HeavyWords, ...] = ()
        self.queries: dict[str, str] = {}
        self.idle: tuple[str, ...] = ()
        self.so_far: Mapping[str, Share] = {}
        self.totals: Counter[str] = Counter()
        self.groups = Groups()
        self.slots: dict[str, npt.NDArray[Any]] = {}
        self._end: Happened | None = None

    @property
    def last(self) -> Epoch | None:
        """The last epoch."""
        return self.epochs[-1] if self.epochs else None

    def look(self) -> None:
        """Read what is new, unless somebody just did."""
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        try:
            self._read()
            self._trouble = ""
        except OSError as error:
            self._trouble = self._unreadable(error)

    def _read(self) -> None:
        news = self._reader.news()
        if news.num_rows and self._goes_back(news):
            self._reset()
            news = self._reader.news()
        if news.num_rows:
            self._take(news)
            self.version += 1

    def standing(self) -> Standing:
        """How it stands, by its marks and by who holds its lease."""
        now = time.monotonic()
        if now - self._asked > _ASK_S:
            self._asked = now
            self._ask(now)
        if self._trouble:
            return Standing("unreadable", self._trouble)
        end, owner = self._end, self._owner
        if end is not None and (owner is None or owner.released or owner.is_gone):
            return Standing(end.kind, end.text)
        if owner is None or (owner.released and not self.epochs):
            return Standing("unknown", "nothing has run here yet")
        silent = now - self._beat_at > owner.ttl_s and not owner.is_near
        if owner.released:
            return Standing("ended", "it has ended, and left no mark why")
        if owner.is_gone or silent:
            return Standing("killed", f"killed: {owner} is gone and left no mark; the checkpoint restarts")
        return Standing("running", f"{owner}")

    def _ask(self, now: float) -> None:
        """Look at who holds its lease, and whether it has beaten since."""
        before = self._owner
        try:
            self._owner = owner = last_owner(self._files)
        except OSError as error:
            self._trouble = self._unreadable(error)
            return
        if before is None or owner is None or (before.id, before.beat) != (owner.id, owner.beat):
            self._beat_at = now

    def _unreadable(self, error: OSError) -> str:
        return f"{self.root} cannot be read: {error.strerror or str(error).partition(chr(10))[0]}"

    def _goes_back(self, news: pa.Table) -> bool:
        """Whether epochs come again that were told before, so that all is read anew."""
        last = self.last
        if last is None:
            return False
        told = news.select(["kind", "epoch", "step"]).to_pylist()
        first = next((row for row in told if row["kind"] == "epoch"), None)
        return first is not None and (first["epoch"], first["step"]) <= (last.epoch, last.step)

    def _take(self, news: pa.Table) -> None:
        for row in _rows(settled(news)):
            told = words_of(row["told"])
            if row["kind"] == "epoch":
                self._take_epoch(row, told)
            else:
                self._take_mark(row, told)

    def _take_epoch(self, row: Row, told: Words) -> None:
        last, at_us = self.last, row["at_us"]
        total = max(row["total_s"] or 0.0, 1e-6)
        wall = total if last is None or self._end is not None else max((at_us - last.at_us) / 1e6, 1e-3)
        streams = row["streams"] or []
        newest = zip(streams, row["stream_newest"] or [], row["stream_delay"] or [], strict=False)
        epoch = Epoch(
            row["epoch"],
            row["step"],
            at_us,
            {name: value for name, value in row.items() if not isinstance(value, (list, np.ndarray))},
            dict(zip(streams, row["stream_rows"] or [], strict=False)),
            dict(zip(streams, row["stream_late"] or [], strict=False)),
            {name: time_ - delay for name, time_, delay in newest if time_ is not None},
            dict(zip(row["queries"] or [], row["query_matches"] or [], strict=False)),
            told.complete,
            wall,
        )
        self.epochs.append(epoch)
        self._end = None
        self.totals.update({f"rows {name}": n for name, n in epoch.rows.items()})
        self.totals.update({f"late {name}": n for name, n in epoch.late.items()})
        self.heavy, self.idle, self.so_far = told.heavy, told.idle, told.complete_so_far
        self._take_slots(row)
        if row["group_ids"] is not None:
            layout = (row["group_ids"], row["group_slots"], row["group_stages"], row["group_depths"])
            self.groups = self.groups.placed(*layout, at_us)
        if row["loaded_groups"] is not None:
            self.groups.load(row["loaded_groups"], row["load_rows"], row["load_matches"])
        for one in told.decisions:
            self.decisions.append(_decided(epoch, one))
        for text in told.warnings:
            self.events.append(Happened(at_us, epoch.epoch, "warning", text))

    def _take_slots(self, row: Row) -> None:
        names = ("slot_active", "slot_cells", "slot_pushed", "slot_rows", "slot_matches", "slot_busy_s")
        n_slots, own = row["n_slots"] or 0, row["slots"]
        for name in names:
            held = self.slots.get(name, np.zeros(0))
            grown = np.zeros(n_slots, dtype=np.float64)
            if name in names[:3]:  # what a slot holds stays, what it did not
                grown[: min(len(held), n_slots)] = held[:n_slots]
            if own is not None:
                grown[own] = row[name]
            self.slots[name] = grown

    def _take_mark(self, row: Row, told: Words) -> None:
        at_us, epoch, kind = row["at_us"], row["epoch"], row["kind"]
        if kind == "end":
            how, cause = told.how or "ended", told.cause
            text = {"ended": "ended: all that was there is done", "closed": "closed: the input has ended for good",
                    "stopped": "stopped in good order", "failed": f"failed: {cause}"}.get(how, how)  # fmt: skip
            self._end = Happened(at_us, epoch, how, text)
            self.events.append(self._end)
            return
        self._end = None
        came, went = dict(told.came), list(told.went)
        if kind == "start":
            self.name = told.name or self.name
            known, now = self.queries, told.queries
            came = {name: text for name, text in now.items() if known.get(name) != text}
            went = [name for name in known if name not in now]
            self.events.append(Happened(at_us, epoch, "started", _start_text(epoch, told)))
            if told.replays is not None:
                text = f"epoch {told.replays} was begun and not committed: it is computed again"
                self.events.append(Happened(at_us, epoch, "replay", text))
        for name, text in came.items():
            self.events.append(Happened(at_us, epoch, "query came", f"{name}: {' '.join(text.split())}"))
        for name in went:
            self.events.append(Happened(at_us, epoch, "query went", name))
        self.queries = {**{n: t for n, t in self.queries.items() if n not in went}, **came}


def _start_text(epoch: int, told: Words) -> str:
    by = f"by process {told.process} on {told.host}"
    after = "from the beginning" if epoch < 0 else f"after epoch {epoch}"
    lost = "; the process before was lost" if told.took_over else ""
    return f"{after}, {by}{lost}"


def _rows(table: pa.Table) -> list[Row]:
    """Entries as dictionaries; long lists of numbers as arrays."""
    columns: dict[str, list[Any]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        is_long = name.startswith(("slot", "group", "load"))
        columns[name] = [_array(one) for one in column] if is_long else column.to_pylist()
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _array(one: pa.ListScalar) -> npt.NDArray[Any] | None:
    return one.values.to_numpy(zero_copy_only=False) if one.is_valid else None


def _decided(epoch: Epoch, one: Deciding) -> Decided:
    return Decided(epoch.epoch, epoch.at_us, one.rule, one.reason, one.refusal, _what(one))


def _what(one: Deciding) -> str:
    """Instructions in a few words: the first ones, and how many more there are."""
    told = [_instruction(each) for each in one.instructions[:3]]
    left = one.n_instructions - len(told)
    return ", ".join(told) + (f" and {left} more" if left > 0 else "")


def _instruction(each: Json) -> str:
    kind, group, slot = each.get("kind"), each.get("group"), each.get("slot")
    if kind in ("move", "split"):
        return f"{kind} group {group} {'to' if kind == 'move' else 'with'} slot {slot}"
    if kind in ("merge", "spill", "clean_up"):
        word = {"spill": "push", "clean_up": "clean up"}.get(kind, kind)
        return f"{word} group {group}"
    if kind == "shed":
        return f"shed by {each.get('by')}"
    if kind == "regrid":
        grid = each.get("grid")
        return f"grid {'x'.join(map(str, grid['dims']))} for {grid.get('label') or 'a key'}" if grid else "no grid"
    return str(kind).replace("_", " ")
