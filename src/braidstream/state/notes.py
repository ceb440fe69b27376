"""What a manifest remembers beside state and routing: one field for each that writes notes, each a value of its own.

A note is written after one epoch and read before or after the next, by the same plane; so a replayed epoch is decided
alike, and a restart goes on where it was. The JSON is that of 0.1.0, under the name `memory`: what is not there has its
default. A note that this version does not know is refused: a later version wrote it, and state may mean by it what
this one would get wrong (a router, a filter on rows).

Invariant: notes are values, and nothing here decides. Size: O(groups + queries + heavy keys).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import convert

from braidstream.control.heavy import Tracker
from braidstream.control.remembered import Memory
from braidstream.model.dead_rows import Filter
from braidstream.model.declarations import Declared, Target
from braidstream.model.figures import SlotFigures, WaitingFigures, figures_from_rows
from braidstream.model.group_measures import ByGroup, GroupMeasures
from braidstream.model.numbers import Address, GroupId
from braidstream.model.reports import SampleCounts
from braidstream.model.snapshots import UNSEALED
from braidstream.model.undecided import Owed
from braidstream.model.values import Json, Value, changed, of_numpy

__all__ = [
    "CLOSED",
    "Cleaning",
    "Heavy",
    "KeptFigures",
    "LateRows",
    "Ledger",
    "Measures",
    "NodeNote",
    "Notes",
    "Shedding",
    "Silence",
    "Submitted",
    "encoded_note",
    "read_note",
]

FIRST_RATE = float(8 << 20)
"""Bytes that a slot cleans up in a second, until that was measured."""
CLOSED = "done"
"""What a checkpoint's last manifest says of its end."""


class KeptFigures:
    """The figures of a reorganization epoch that is not over, as columns; manifests of 0.1.0 have them as rows."""

    __slots__ = ("waiting",)

    def __init__(self, figures: Sequence[SlotFigures] = ()) -> None:
        self.waiting = WaitingFigures.of(figures)

    @classmethod
    def of(cls, waiting: WaitingFigures) -> KeptFigures:
        """Of columns."""
        made = cls()
        made.waiting = waiting
        return made

    @property
    def figures(self) -> tuple[SlotFigures, ...]:
        """The same as objects, without state."""
        return self.waiting.figures()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeptFigures) and other.waiting == self.waiting

    def __hash__(self) -> int:
        return hash(self.waiting)

    def __repr__(self) -> str:
        return f"KeptFigures({self.figures!r})"


class Heavy(Value, frozen=True):
    """Of `epoch.regridder`: the frequent keys of each store, the next free id of a grid, and the rows of others."""

    trackers: Mapping[str, Tracker] = msgspec.field(default_factory=dict)
    next_id: int = 1
    others: tuple[float, ...] = ()
    """By slot: new rows of keys that are not among the most frequent, of late."""


class Measures(GroupMeasures, frozen=True):
    """What is known of groups, and (of `epoch.spiller`) how many bytes a slot cleans up in a second."""

    rate: float = FIRST_RATE


class Cleaning(Value, frozen=True):
    """What the next epoch cleans up, or a step of its own after the last one: an intent (`epoch.spiller`)."""

    groups: tuple[GroupId, ...] = ()
    step: int = 0
    """Above 0: not in an epoch, but in that step."""
    some: Mapping[GroupId, frozenset[int]] = msgspec.field(default_factory=dict)
    """Groups of which only these generations are cleaned up, among themselves."""
    resumed: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Instead of groups: suspended joins, each with the last epoch that it has joined."""

    @property
    def only_some(self) -> dict[GroupId, frozenset[int]]:
        """`some`, without groups that are cleaned up as a whole."""
        return {group: numbers for group, numbers in self.some.items() if group not in self.groups}


class LateRows(Value, frozen=True):
    """Of `epoch.lateness`, for a stream: late rows without a time, and the delay that the others would have needed."""

    untimed: int = 0
    needed_us: int = 0


class Silence(Value, frozen=True):
    """Of `epoch.idleness`: when streams were last heard of, in microseconds of wall time, and which are idle."""

    heard: Mapping[str, int] = msgspec.field(default_factory=dict)
    idle: tuple[str, ...] = ()


class Shedding(Value, frozen=True):
    """Of `epoch.shedder`."""

    filter: Filter | None = None
    """What is dead among the stored rows."""
    last: Mapping[str, SampleCounts] = msgspec.field(default_factory=dict)
    """By query: the counts of the last epoch."""
    run: Mapping[str, SampleCounts] = msgspec.field(default_factory=dict)
    """Those of all epochs."""
    yields: Mapping[Address, tuple[float, float]] = msgspec.field(default_factory=dict)
    """By the address where a group begins: its results of late, and the bytes that it held for them."""
    held: Mapping[Address, float] = msgspec.field(default_factory=dict)
    """Likewise the bytes that live."""
    live_bytes: int | None = None
    ended: int | None = None
    """The newest time that was stored."""
    pace_us: int | None = None
    """The event time that an epoch covers."""
    expected: Mapping[str, tuple[float, ...]] = msgspec.field(default_factory=dict)
    """By query, for each piece of the filter: which share of the results to expect."""
    shed_bytes: int = 0


class Submitted(Value, frozen=True):
    """A query that came while the flow ran: its text, its sink (None: a function), and the last epoch before it."""

    text: str
    to: str | None = None
    path: str | None = None
    options: Mapping[str, str] = msgspec.field(default_factory=dict)
    since: int = -1


class TableNote(Value, frozen=True):
    """Of `spark.joined_tables`: which snapshot of a table epochs see, and when it was taken, in microseconds."""

    location: str
    version: str | None
    """None where snapshots cannot be told apart."""
    schema: str
    taken_us: int


class NodeNote(Value, frozen=True):
    """The state of a function's node: its numbers, and the file of its samples or windows, if it has any."""

    node: str
    numbers: Mapping[str, int | None] = msgspec.field(default_factory=dict)
    file: str | None = None
    rows: int = 0
    bytes: int = 0
    holds_windows: bool = False
    checksum: int = UNSEALED


class Ledger(Value, frozen=True):
    """Notes that grow with groups and slots, and that only the driver reads: a file apart from what tasks read."""

    controller: Memory = Memory()
    reports: KeptFigures = KeptFigures()
    heavy: Heavy = Heavy()
    measures: Measures = Measures()
    yields: Mapping[Address, tuple[float, float]] = msgspec.field(default_factory=dict)
    held: Mapping[Address, float] = msgspec.field(default_factory=dict)


class Notes(Value, frozen=True):
    """The notes of a manifest."""

    controller: Memory = Memory()
    reports: KeptFigures = KeptFigures()
    """Figures that wait for the next reorganization (`epoch.reorganizer`)."""
    heavy: Heavy = Heavy()
    measures: Measures = msgspec.field(name="spilling", default=Measures())
    cleaning: Cleaning | None = None
    steps: int = 0
    """Steps of clean-up so far; none is used twice."""
    suspended: Mapping[str, int] = msgspec.field(default_factory=dict)
    """By suspended join the last epoch whose tuples it has joined (`control.suspension`)."""
    rates: Mapping[str, tuple[float, float]] = msgspec.field(default_factory=dict)
    """By stream (`control.rates`)."""
    fanouts: Mapping[str, Mapping[int, float]] = msgspec.field(default_factory=dict)
    """By join and probed input (`control.probing`)."""
    slot_fanouts: Mapping[str, Mapping[int, Mapping[int, float]]] = msgspec.field(default_factory=dict)
    """By join and slot, of slots whose probing sequences differ from those by `fanouts` (`control.probing`)."""
    lateness: Mapping[str, LateRows] = msgspec.field(default_factory=dict)
    shedding: Shedding | None = None
    biclique: int | None = None
    """The subgroups of a biclique; None: it is none (`epoch.routers`)."""
    filters: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """By store: what the bits of its rows' masks mean."""
    trees: Mapping[str, Json] | None = None
    """By query: its tree (`query.tree.plain_tree`); None: written before trees were remembered."""
    declared: Mapping[str, Declared] | None = None
    """The queries as they were declared at the last start; None: written before that was noted."""
    streams: Mapping[str, Mapping[str, str]] | None = None
    """Likewise the streams: of each its schema and its time column."""
    bad: Mapping[str, Target] | None = None
    """By stream where rows go that cannot be read; None: written before outputs for bad rows were noted."""
    submitted: Mapping[str, Submitted] = msgspec.field(default_factory=dict)
    withdrawn: tuple[str, ...] = ()
    folders: Mapping[str, int] = msgspec.field(default_factory=dict)
    """The folders of sinks, each with the last epoch before it was there."""
    delays: Mapping[str, int] = msgspec.field(default_factory=dict)
    """By stream whose delay was measured, in microseconds."""
    plan: str | None = None
    """Of a function: the plan of the next epoch."""
    nodes: Mapping[str, NodeNote] = msgspec.field(default_factory=dict)
    """Of a function: its nodes, by stage and number."""
    slow: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Of a function: the nodes that get no windows, each with the last epoch of that (`functions.slow_nodes`)."""
    given_up: int = 0
    """Written by functions of 0.1.0; nobody reads it."""
    silence: Silence = Silence()
    tables: Mapping[str, TableNote] = msgspec.field(default_factory=dict)
    """By table: the snapshot that the next epoch sees."""
    undecided: Mapping[str, tuple[Owed, ...]] = msgspec.field(default_factory=dict)
    """By store: where its rows wait for a clean-up to be decided (`model.undecided`)."""
    logged: int | None = None
    """In object stores: the checksum of what Spark has logged of the epoch (`state.offsetlog`)."""
    ended: str | None = None
    """Of `epoch.ending`: "begun" when all that may still happen is the end, "done" when the checkpoint is closed."""
    next_grid: int = 1
    """Of `lab.testing.restless_grids`: the next free id."""

    @property
    def is_closed(self) -> bool:
        """Whether the flow has ended for good."""
        return self.ended == CLOSED

    def ledger(self) -> Ledger:
        """The notes that only the driver reads."""
        shed = self.shedding or Shedding()
        return Ledger(self.controller, self.reports, self.heavy, self.measures, shed.yields, shed.held)

    def without_ledger(self) -> Notes:
        """The others."""
        shed = None if self.shedding is None else changed(self.shedding, yields={}, held={})
        empty = Ledger()
        return changed(
            self,
            controller=empty.controller,
            reports=empty.reports,
            heavy=empty.heavy,
            measures=empty.measures,
            shedding=shed,
        )

    def with_ledger(self, own: Ledger) -> Notes:
        """Both together again."""
        shed = None if self.shedding is None else changed(self.shedding, yields=own.yields, held=own.held)
        return changed(
            self,
            controller=own.controller,
            reports=own.reports,
            heavy=own.heavy,
            measures=own.measures,
            shedding=shed,
        )

    def renewed(self) -> Notes:
        """These notes, with measures that 0.1.0 kept in the controller's memory where they are now.

        The budget's, if it had any, are the same ones, counted more exactly.
        """
        old, known = self.controller, self.measures
        if not old.outputs and not old.touched:
            return self
        has_own = known.outputs or known.touched
        measures = known if has_own else changed(known, touched=old.touched, outputs=old.outputs)
        return changed(self, controller=changed(old, outputs={}, touched={}), measures=measures)


def encoded_note(value: object) -> Json:
    """What JSON has in the place of a value that msgspec does not know."""
    if isinstance(value, KeptFigures):
        return value.waiting
    return dict(value) if isinstance(value, ByGroup) else of_numpy(value)


def read_note(kind: type, plain: Json) -> KeptFigures:
    """The value of that."""
    if kind is KeptFigures:
        is_of_0_1_0 = isinstance(plain, list)
        return KeptFigures(figures_from_rows(plain)) if is_of_0_1_0 else KeptFigures.of(convert(plain, WaitingFigures))
    raise TypeError(f"a {kind.__name__} is no note")
