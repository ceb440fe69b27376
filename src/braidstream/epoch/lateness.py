"""Late rows that are too many to go unsaid: which share they are, and the delay that they would have needed.

A row is late when it is older than the watermark before its epoch, and is then counted instead of joined. With a delay
of its stream of (newest time seen before the epoch - its own time) it would not have been; a routing task's tally has
the oldest late row, so the largest such delay costs nothing to know. A share above `MUCH` of an epoch's rows, or of all
rows so far, is a warning: in progress, on the terminal, in the summary and in `braid state`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from braidstream.model.reports import Tally
from braidstream.query import describe_duration
from braidstream.state.manifest import Manifest
from braidstream.state.notes import LateRows

__all__ = ["MUCH", "Lateness", "late_in_all", "late_in_epoch", "late_warnings", "remembered", "warning"]

MUCH = 0.01
"""The share of late rows above which something is wrong with the delay or with the order of the source."""
_STEPS_US = (1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000)


@dataclass(frozen=True)
class Lateness:
    """The late rows of a stream, in an epoch or in all."""

    rows: int
    late: int
    untimed: int = 0
    """Those of them that have no time, so that no delay helps."""
    needed_us: int = 0
    """The delay with which no other would have been late."""

    @property
    def share(self) -> float:
        """Of all rows."""
        return self.late / self.rows if self.rows else 0.0

    @property
    def is_much(self) -> bool:
        """Whether it is worth a warning."""
        return self.share > MUCH


def late_in_epoch(tallies: Mapping[str, Tally], newest: Mapping[str, int]) -> dict[str, Lateness]:
    """By stream, from what routing tasks saw; `newest` are the newest times before the epoch."""
    return {
        stream: Lateness(tally.rows, tally.late, tally.untimed, _needed(tally, newest.get(stream)))
        for stream, tally in tallies.items()
    }


def late_in_all(manifest: Manifest) -> dict[str, Lateness]:
    """By stream, since the first epoch of the checkpoint."""
    known, totals = manifest.notes.lateness, manifest.totals
    streams = [name.removesuffix(".late") for name in totals if name.endswith(".late")]
    return {
        stream: Lateness(totals.get(f"{stream}.rows", 0), totals[f"{stream}.late"], own.untimed, own.needed_us)
        for stream in streams
        for own in [known.get(stream, LateRows())]
    }


def remembered(known: Mapping[str, LateRows], found: Mapping[str, Lateness]) -> dict[str, LateRows]:
    """What the manifest remembers after an epoch with these late rows."""
    after = dict(known)
    for stream, one in found.items():
        if one.late:
            before = after.get(stream, LateRows())
            after[stream] = LateRows(before.untimed + one.untimed, max(before.needed_us, one.needed_us))
    return after


def late_warnings(epoch: int, now: Mapping[str, Lateness], so_far: Mapping[str, Lateness]) -> Iterator[str]:
    """Where an epoch, or all so far, have more late rows than one may pass over."""
    yield from (warning(stream, one, f"epoch {epoch}") for stream, one in now.items() if one.is_much)
    yield from (warning(stream, one, "all epochs so far") for stream, one in so_far.items() if one.is_much)


def warning(stream: str, of: Lateness, what: str) -> str:
    """What was late, and what to do. `what` are its rows: "epoch 3", "all epochs"."""
    lost = (
        f"stream {stream}: {of.share:.1%} of the rows of {what} were late, and not joined ({of.late:,} of {of.rows:,})"
    )
    return "; ".join([lost, *_remedies(of)])


def _remedies(of: Lateness) -> Iterator[str]:
    if of.untimed:
        yield f"{of.untimed:,} of them have no time"
    if of.untimed == of.late:
        return
    if not of.needed_us:
        yield "give the stream a longer delay, and start with a new checkpoint"
        return
    length = describe_duration(_rounded_up(of.needed_us))
    yield f'to join them, give the stream delay = "{length}" or more, and start with a new checkpoint'


def _needed(tally: Tally, newest: int | None) -> int:
    return 0 if tally.oldest_late is None or newest is None else max(newest - tally.oldest_late, 0)


def _rounded_up(us: int) -> int:
    """To whole seconds, minutes, hours or days, whichever keeps two digits or so of it."""
    step = max((step for step in _STEPS_US if us >= 10 * step), default=_STEPS_US[0])
    return -(-us // step) * step
