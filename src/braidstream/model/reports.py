"""What tasks say of an epoch: a routing task its tally, a slot its report. All that the driver learns of the data.

A slot gives `SlotReport` for each stage of an epoch, `CleanUpReport` for a clean-up, and `Failure` where trying again
would not help. They cross from worker to driver as msgpack (`encoded`, `decoded`), what they say of groups as columns,
and nobody keeps them: what is kept of an epoch is in the manifest, what policies see of it are `model.figures`.

Invariant: a report is a function of the task's inputs but for times and the names of files. Size: O(groups of the slot
with new rows or matches), whatever the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec
import numpy as np

from braidstream.errors import DamagedState, RunError
from braidstream.model.group_measures import BroughtColumns
from braidstream.model.numbers import GroupId, SlotId
from braidstream.model.packed_numbers import Column, Numbers, concatenated
from braidstream.model.parts import Segment
from braidstream.model.snapshots import Written
from braidstream.model.values import Value, of_numpy

__all__ = [
    "CellCount",
    "CleanUpReport",
    "Failure",
    "Frequent",
    "GroupCount",
    "GroupCounts",
    "Report",
    "Result",
    "SampleCounts",
    "SlotReport",
    "StagedFile",
    "Tally",
    "brought_by",
    "decoded",
    "encoded",
    "slot_reports",
]


class Tally(Value, frozen=True):
    """What one routing task saw of one stream."""

    stream: str
    rows: int = 0
    indexed: int = 0
    late: int = 0
    keyless: int = 0
    newest: int | None = None
    untimed: int = 0
    """Late rows that have no time."""
    oldest_late: int | None = None
    """The oldest time of the other late rows."""
    began: float = 0.0
    """When the task began, in seconds since 1970 on its machine's clock; 0: it does not say."""
    ended: float = 0.0
    failed: int = 0
    """Rows of which some query could not compute an expression, and which went to its output for bad rows."""

    def plus(self, other: Tally) -> Tally:
        """Both together."""
        times = [t for t in (self.newest, other.newest) if t is not None]
        late = [t for t in (self.oldest_late, other.oldest_late) if t is not None]
        return Tally(
            self.stream,
            self.rows + other.rows,
            self.indexed + other.indexed,
            self.late + other.late,
            self.keyless + other.keyless,
            max(times) if times else None,
            self.untimed + other.untimed,
            min(late) if late else None,
            min((t for t in (self.began, other.began) if t), default=0.0),
            max(self.ended, other.ended),
            self.failed + other.failed,
        )

    def pack(self) -> bytes:
        """As a blob."""
        return _ENCODER.encode(self)

    @classmethod
    def unpack(cls, blob: bytes) -> Tally:
        """From a blob."""
        return _TALLIES.decode(blob)


class StagedFile(Value, frozen=True):
    """A file of results on its way to a sink."""

    name: str
    bytes: int
    checksum: int


class Result(Value, frozen=True):
    """What a slot has staged of a query: so many rows, in a file if there are any and the sink takes files."""

    rows: int
    file: StagedFile | None = None


class GroupCount(Value, frozen=True, array_like=True):
    """What an epoch brought to a group at one stage."""

    group: GroupId
    rows: int
    matches: int


class GroupCounts(Value, frozen=True, array_like=True):
    """What an epoch brought to groups at one stage: `GroupCount`s as columns, and their sums."""

    groups: Column = Column()
    rows: Column = Column()
    matches: Column = Column()
    all_rows: int = 0
    all_matches: int = 0

    @classmethod
    def of(cls, groups: Numbers, rows: Numbers, matches: Numbers) -> GroupCounts:
        """Of arrays."""
        columns = (Column.of(groups), Column.of(rows), Column.of(matches))
        return cls(*columns, int(columns[1].whole.sum()), int(columns[2].whole.sum()))

    @classmethod
    def of_counts(cls, counts: Iterable[GroupCount]) -> GroupCounts:
        """Of single ones."""
        listed = list(counts)
        return cls.of([one.group for one in listed], [one.rows for one in listed], [one.matches for one in listed])

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[GroupCount]:
        """Each as an object: for small cases."""
        columns = (self.groups.whole.tolist(), self.rows.whole.tolist(), self.matches.whole.tolist())
        return map(GroupCount, *columns)


class CellCount(Value, frozen=True, array_like=True):
    """New rows of a cell, by the store and its use in a join."""

    store: int
    use: int
    code: int
    rows: int


class Frequent(Value, frozen=True):
    """The largest counts of keys among a slot's new rows of a store, and a bound on those that are left out."""

    rows: int
    hashes: Column = Column()
    counts: Column = Column()
    """Of each hash; counts of tuples, not of their replicas."""
    left_out: int = 0
    """No key that is not listed has more rows than this."""
    labels: Mapping[int, str] = msgspec.field(default_factory=dict)
    """Values of (some of) the keys, for people."""

    @classmethod
    def of(
        cls, rows: int, keys: Iterable[tuple[int, int]], left_out: int = 0, labels: Mapping[int, str] | None = None
    ) -> Frequent:
        """Of (hash, count)."""
        pairs = list(keys)
        hashes = Column.of(np.array([hash_ for hash_, _ in pairs], dtype=np.uint64))
        return cls(rows, hashes, Column.of([count for _, count in pairs]), left_out, labels or {})

    @property
    def keys(self) -> list[tuple[int, int]]:
        """(hash, count), for small cases."""
        return list(zip(self.hashes.array.tolist(), self.counts.array.tolist(), strict=True))


class SampleCounts(Value, frozen=True):
    """Results of one query where tuples may be shed, as `control.estimate.Counts` has them: lists are by bucket."""

    exact: int
    n_found: int
    all: tuple[int, ...]
    kept: tuple[float, ...]
    found: tuple[float, ...]
    n_kept: float = 0
    at_risk: int = 0
    n_all: float = 0
    squares: float = 0


class _Ran(Value, frozen=True, kw_only=True):
    """What every task says that did its work."""

    slot: SlotId
    executor: str
    results: Mapping[str, Result] = msgspec.field(default_factory=dict)
    """By query."""
    fetched: int = 0
    """Segments that had to be fetched from a remote state folder."""
    busy_s: float = 0.0
    sealing_s: float = 0.0
    """What of it went into checksums."""
    peak_mb: float = 0.0
    """The largest memory that the worker process has had."""


class SlotReport(_Ran, frozen=True, kw_only=True, tag="slot"):
    """A slot at one stage of an epoch."""

    stage: int
    began: float = 0.0
    """When it began, in seconds since 1970 on its machine's clock."""
    store_s: float = 0.0
    """Of its busy time, what went into segments, merges and its section."""
    tallies: tuple[Tally, ...] = ()
    rows: int = 0
    bytes: int = 0
    """What it received."""
    section: Written | None = None
    """What it has now, if that changed."""
    adopted: Mapping[int, tuple[Segment, ...]] = msgspec.field(default_factory=dict)
    """What its cells took over, by the number of the adoption."""
    produced: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Intermediate results, by join."""
    probes: Mapping[str, Mapping[int, tuple[int, int]]] = msgspec.field(default_factory=dict)
    """(probes, matches) by join and probed input."""
    late: Mapping[str, StagedFile] = msgspec.field(default_factory=dict)
    """The files of late rows, by stream."""
    groups: GroupCounts = GroupCounts()
    """Groups with new rows or matches."""
    frequent: Mapping[int, Frequent] = msgspec.field(default_factory=dict)
    """By store."""
    cells: tuple[CellCount, ...] = ()
    cell_matches: tuple[tuple[int, int], ...] = ()
    """(code, matches) of its cells."""
    shed: Mapping[str, SampleCounts] = msgspec.field(default_factory=dict)
    """By query; of joins whose inputs may be shed."""

    @property
    def matches(self) -> int:
        """Composites of its groups and cells."""
        return self.groups.all_matches + sum(matches for _, matches in self.cell_matches)

    @property
    def units(self) -> int:
        """Rows and matches, in groups and in cells: what its time is spent on."""
        return self.groups.all_rows + sum(one.rows for one in self.cells) + self.matches


class CleanUpReport(_Ran, frozen=True, kw_only=True, tag="clean-up"):
    """A slot in a clean-up. Its results are those that were missing between generations."""

    bytes: int = 0
    """What it read."""


class Failure(Value, frozen=True, tag="failure"):
    """A slot cannot go on, and trying again would not help; with `path`, because that file of the state is damaged."""

    slot: SlotId
    wrong: str
    expected: str = ""
    fix: str = ""
    path: str | None = None

    @classmethod
    def of(cls, slot: SlotId, error: RunError) -> Failure:
        """The report of an error."""
        if isinstance(error, DamagedState):
            return cls(slot, error.wrong.removeprefix(f"{error.path}: "), path=error.path)
        return cls(slot, error.wrong, error.expected, error.fix)

    def error(self) -> RunError:
        """The error again."""
        return (
            RunError(self.wrong, self.expected, self.fix) if self.path is None else DamagedState(self.path, self.wrong)
        )


Report: TypeAlias = "SlotReport | CleanUpReport"

_ENCODER = msgspec.json.Encoder(enc_hook=of_numpy)
_TALLIES = msgspec.json.Decoder(Tally)
_SENDER = msgspec.msgpack.Encoder(enc_hook=of_numpy)
_Sent: TypeAlias = "SlotReport | CleanUpReport | Failure"
_REPORTS: msgspec.msgpack.Decoder[_Sent] = msgspec.msgpack.Decoder(SlotReport | CleanUpReport | Failure)
_LONG_REPORTS: msgspec.json.Decoder[_Sent] = msgspec.json.Decoder(SlotReport | CleanUpReport | Failure)
_JSON = ord("{")
"""How JSON begins, and msgpack of a report never does."""


def encoded(report: Report | Failure) -> bytes:
    """A report on its way to the driver: msgpack, or JSON if it has a number of more than 64 bits (a deep prefix)."""
    try:
        return _SENDER.encode(report)
    except OverflowError:
        return _ENCODER.encode(report)


def decoded(blobs: Iterable[bytes | bytearray]) -> list[Report]:
    """The reports of tasks. A failure among them is raised."""
    found: list[Report] = []
    for blob in blobs:
        report = (_LONG_REPORTS if blob[0] == _JSON else _REPORTS).decode(blob)
        if isinstance(report, Failure):
            raise report.error()
        found.append(report)
    return found


def slot_reports(reports: Iterable[Report]) -> list[SlotReport]:
    """Those of slots that joined, without clean-ups."""
    return [report for report in reports if isinstance(report, SlotReport)]


def brought_by(reports: Iterable[SlotReport]) -> BroughtColumns:
    """What reports say of groups, one after the other."""
    counts = [report.groups for report in reports if report.groups.groups.data]
    return BroughtColumns(
        concatenated(one.groups for one in counts),
        concatenated(one.rows for one in counts),
        concatenated(one.matches for one in counts),
    )
