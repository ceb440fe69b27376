"""Every option there is, a field each: of a flow, its start, its controller, its streams, queries, sinks and functions.

This is the one place where an option's range, default, example and meaning stand. `Flow(...)` and `Flow.start(...)`
have a keyword for each option of `FlowOptions` and `StartOptions`, job files a line, and docs/options.md a row; all of
them refuse the same values with the same words. A new option is a new field here, a keyword of the call that takes it,
and the code that uses its value (tests/test_options.py compares the three).

Invariant: whatever 0.1.0 accepted is accepted. Cost: see `options.option`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from datetime import timedelta
from typing import Literal, get_args

from braidstream.errors import InputError
from braidstream.options.kinds import Choice, Count, Counts, Duration, Flag, Inner, Number, Size, Text, Words
from braidstream.options.option import Checked, chosen, option

__all__ = [
    "CHOICES",
    "ORDERS",
    "PUSHED",
    "ROUTERS",
    "RULES",
    "SINK",
    "STRATEGIES",
    "BudgetOptions",
    "Disk",
    "FlowOptions",
    "JobControl",
    "JobFlow",
    "JobQuery",
    "JobSink",
    "JobStream",
    "JobTableOptions",
    "RouterOptions",
    "Settings",
    "StartOptions",
]

ROUTERS = ("auto", "hash", "grid", "biclique")
RULES = ("even", "paper")
CHOICES = ("spill", "shed")
STRATEGIES = ("oldest", "random", "unproductive", "sample", "planned")
PUSHED = ("unproductive", "random", "productive")
ORDERS = ("time", "name", "modified")
VALUES = ("json", "avro")
ALLOWED = ("no-equality",)
OWN_WAYS = ("mode", "columnnameofcorruptrecord")
"""Options of Spark's that say what becomes of rows that cannot be read."""
DURABILITIES = ("power", "process")
DECLUSTERING = ("steady", "paper")
Disk = Literal["none", "lazy", "active"]
_MOST_SLOTS = 4096
_CQL = "SELECT ... FROM R [RANGE 10 SECONDS], S [RANGE 10 SECONDS] WHERE R.k = S.k"
SINK = {"format": "parquet", "path": "out/pairs"}
"""The example of one."""
_FILES = Text("a folder", is_path=True)
_STATE = Text("a folder", is_path=True, is_needed=True)


@dataclass(frozen=True)
class LayoutOptions(Checked):
    """What a flow is called, and how its state is divided."""

    name: str = option(
        Text(),
        "flow",
        "pairs",
        "The flow's name, in progress and Spark's pages",
        unset='"flow", or the name of the job file',
    )
    slots: int | None = option(
        Count(1, _MOST_SLOTS), None, 4, "Logical workers: tasks of each exchange", unset="Spark's cores, or as it was"
    )
    groups: int | None = option(
        Count(1, 1 << 16), None, 128, "Units of state and routing at the start, for each stage",
        unset="a power of two, at least 64 and eight a slot",
    )  # fmt: skip
    placement: tuple[int, ...] = option(
        Counts(), (), (3, 1, 1, 1),
        "How the groups of a new checkpoint are dealt to the slots: a share for each (D-CAPE 5.2)", unset="evenly",
    )  # fmt: skip
    silence: str | timedelta | None = option(
        Duration(), None, "10 minutes", "How long a stream may be silent before work that waits for it is suspended"
    )
    controller: bool = option(
        Flag(), True, False, "Whether the controller balances the slots; `[control]`, or a Controller, has its settings"
    )


@dataclass(frozen=True)
class RouterOptions(Checked):
    """How rows of one key are spread over slots (docs/skew.md)."""

    router: str = option(Choice(ROUTERS), "auto", "hash", "How rows of one key are spread over slots")
    rule: str = option(Choice(RULES), "even", "paper", 'For grids, how they are chosen; "paper" with router "grid"')
    subgroups: int | None = option(Count(), None, 2, "For a biclique, its subgroups", unset="a quarter of the slots")
    epsilon: float | None = option(
        Number(above=0, below=1), None, 0.05,
        'For rule "paper": a heavy key is light again below (1/p - epsilon) of the tuples (SHC 3.2)',
        unset="1/(2p), the largest that the paper allows",
    )  # fmt: skip

    def check_together(self) -> None:
        """A rule is for grids, subgroups are for a biclique."""
        if self.rule != "even" and self.router != "grid":
            raise InputError(
                f"the rule {self.rule!r} with router {self.router!r}", "a rule for grids", 'router = "grid"'
            )
        if self.subgroups is not None and self.router != "biclique":
            raise InputError(
                f"{self.subgroups} subgroups with router {self.router!r}",
                "a number from 1, for a biclique",
                'router = "biclique", or no subgroups',
            )
        if self.epsilon is not None and self.rule != "paper":
            wrong = f"epsilon {self.epsilon:g} with rule {self.rule!r}"
            raise InputError(wrong, "epsilon for the paper's rule", 'router = "grid" and rule = "paper"')


@dataclass(frozen=True)
class BudgetOptions(Checked):
    """What a slot may hold, and does with state beyond it (docs/memory.md)."""

    memory: str | int | None = option(
        Size(), None, "512 MB", "The active state a slot may hold", unset="a share of the executor's memory"
    )
    on_overflow: str = option(Choice(CHOICES), "spill", "shed", "What is done with state beyond the memory")
    spill_share: float = option(
        Number(above=0, most=1), 0.3, 0.2, "The share of a slot's state that is pushed at once (D-CAPE 4.4: 30%)"
    )
    idle_after: int = option(
        Count(0), 100, 50, "After how many epochs without a new tuple a group is pushed first (theta_t)"
    )
    shed_by: str = option(Choice(STRATEGIES), "oldest", "random", "Which tuples go first where they are shed")
    push_by: str = option(
        Choice(PUSHED), "unproductive", "random", "Which groups go first where they are pushed (D-CAPE 4.3, 4.4)"
    )


@dataclass(frozen=True)
class FlowOptions(BudgetOptions, RouterOptions, LayoutOptions):
    """`Flow(...)`, and `[flow]` of a job file: the options above, and what does not go together among them."""

    def check_together(self) -> None:
        """Where tuples are shed, keys get no grids: cells know nothing of what was shed."""
        RouterOptions.check_together(self)
        self._check_slots()
        if self.on_overflow == "shed" and self.router not in ("auto", "hash"):
            wrong = f"router {self.router!r} with on_overflow 'shed'"
            raise InputError(wrong, 'router "auto" or "hash", or on_overflow "spill"', 'write router = "hash"')

    def _check_slots(self) -> None:
        """What is said of slots must fit their number."""
        if self.placement and len(self.placement) != self.slots:
            told = "no slots" if self.slots is None else f"slots = {self.slots}"
            wrong = f"placement has {len(self.placement)} shares, with {told}"
            raise InputError(wrong, "a share for each slot", f"write slots = {len(self.placement)}")
        if self.epsilon is not None and self.slots is not None and self.epsilon * 2 * self.slots > 1:
            wrong = f"epsilon is {self.epsilon:g}, with {self.slots} slots"
            raise InputError(wrong, f"at most 1/(2p), which is {1 / (2 * self.slots):g} (SHC 3.2)", "make it smaller")


@dataclass(frozen=True)
class StartOptions(Checked):
    """`Flow.start(...)`, and `[flow]` of a job file."""

    checkpoint: str = option(
        Text("a folder", is_path=True, is_needed=True), MISSING, "ck", "The folder of the flow's state"
    )
    epoch: str | timedelta = option(
        Duration(("available",)), "available", "2 seconds",
        'How long an epoch is; "available": what is there, then stop',
    )  # fmt: skip
    keep: int = option(Count(2, 1 << 20), 10, 20, "How many epochs' snapshots are kept")
    history: int = option(
        Count(0, 1 << 20), 4096, 100_000, "How many epochs the history remembers (docs/dashboard.md); 0: there is none"
    )
    durability: str = option(
        Choice(DURABILITIES),
        "power",
        "process",
        'What an epoch outlives: "power", also a machine that loses power; "process", only the death of processes',
    )
    final: bool = option(
        Flag(), False, True, "Whether the input ends with what is there: open windows are closed, then the checkpoint"
    )
    warm: bool = option(Flag(), True, False, "Whether workers are started before the first epoch", job=False)
    wait: str | timedelta = option(
        Duration(), "0 seconds", "1 minute", "How long to wait for another run's end (`braid run --wait`)", job=False
    )

    def check_together(self) -> None:
        """Only input that ends can be final."""
        if self.final and self.epoch != "available":
            wrong = f"final with epoch {self.epoch!r}"
            raise InputError(wrong, 'final with epoch "available": what is there, and nothing after', "leave out one")


@dataclass(frozen=True)
class JobFlow(FlowOptions, StartOptions):
    """`[flow]`: where the state is, and how epochs are made."""

    def check_together(self) -> None:
        """What does not go together in either of them."""
        FlowOptions.check_together(self)
        StartOptions.check_together(self)


@dataclass(frozen=True)
class JobSink(Checked):
    """`sink`, `late` and `bad` of a query, `bad` of a stream: files, a table, a topic, "memory" or "noop"."""

    format: str = option(
        Text(), MISSING, "parquet", 'A batch format of Spark, "postgresql", "memory" or "noop" (docs/connections.md)'
    )
    path: str | None = option(_FILES, None, "out/pairs", "Where files or a table go")
    options: Mapping[str, str] = option(
        Words(), {}, {"compression": "zstd"}, "Options of the sink, or of Spark's writer"
    )


@dataclass(frozen=True)
class JobStream(Checked):
    """`[streams.NAME]`: a streaming source of Spark, its event time, and how late tuples may come."""

    format: str = option(Text(), MISSING, "parquet", "A streaming source of Spark")
    time: str = option(Text(), MISSING, "ts", "The event-time column")
    path: str | None = option(_FILES, None, "data/R", "The folder of its files, where it reads files")
    schema: str | None = option(
        Text(), None, "k long, v long, ts timestamp", "Its columns", unset="as the source brings them"
    )
    delay: str | None = option(
        Duration(), None, "5 seconds", "How late its tuples may come", unset="of Parquet files as measured, of others 0"
    )
    order: str | None = option(
        Choice(ORDERS), None, "time", "For Parquet files: by which they are read", unset='"time" with "available"'
    )
    idle: str | None = option(
        Duration(), None, "10 minutes", "After how long a silence the watermark goes on without it", unset="never"
    )
    options: Mapping[str, str] = option(Words(), {}, {"maxFilesPerTrigger": 1}, "Options of Spark's source")
    value: str | None = option(
        Choice(VALUES), None, "json", "For Kafka: what the value of a message is, whose fields the schema names",
        unset="bytes, as Spark gives them",
    )  # fmt: skip
    bad: JobSink | None = option(
        Inner(JobSink), None, {"format": "json", "path": "out/bad"},
        "For Kafka, JSON and CSV: where rows go that no schema fits", unset="nowhere: the flow stops at the first",
    )  # fmt: skip

    def check_together(self) -> None:
        """A value is Kafka's, and its fields are declared; other columns of Kafka's are not."""
        is_kafka = self.format.lower() == "kafka"
        if self.value is not None and not is_kafka:
            raise InputError(f'value is "{self.value}" in a {self.format} stream', "value for Kafka", "leave it out")
        if self.value is not None and self.schema is None:
            fix = 'add schema = "k long, v long, ts timestamp"'
            raise InputError(f'value is "{self.value}" without a schema', "the fields and their types", fix)
        takes_bad = self.value or (self.schema and self.format.lower() in ("json", "csv"))
        if self.bad is not None and not takes_bad:
            can = "bad for Kafka with a value, JSON or CSV with a schema"
            raise InputError(f"bad for a {self.format} stream", can, 'add value = "json", or a schema, or leave it out')
        theirs = [] if self.bad is None or is_kafka else [one for one in self.options if one.lower() in OWN_WAYS]
        if theirs:
            can = "one way for rows that cannot be read"
            raise InputError(f"bad, and the option {theirs[0]!r}", can, "leave one of them out")
        if is_kafka and self.schema is not None and self.value is None:
            raise InputError("schema for a Kafka stream without a value", "what values are", 'add value = "json"')


@dataclass(frozen=True)
class JobTableOptions(Checked):
    """`[tables.NAME]`: a table that queries may join to streams (docs/guide.md)."""

    format: str = option(Text(), MISSING, "delta", 'A batch format of Spark; "delta" and "iceberg" keep versions')
    path: str | None = option(_FILES, None, "data/customers", "The folder of its files")
    schema: str | None = option(Text(), None, "id long, name string", "Its columns", unset="as they are found there")
    refresh: str | None = option(
        Duration(), None, "10 minutes", "How often a running flow looks for a newer snapshot", unset="at each start"
    )
    options: Mapping[str, str] = option(
        Words(), {}, {"table": "shop.customers"}, "Options of Spark's reader, or of Iceberg"
    )


@dataclass(frozen=True)
class JobQuery(Checked):
    """`[queries.NAME]`: a continuous query and where its results go."""

    cql: str = option(Text(), MISSING, _CQL, "The query")
    sink: JobSink = option(Inner(JobSink), MISSING, SINK, "Where results go")
    late: JobSink | None = option(
        Inner(JobSink), None, {"format": "parquet", "path": "out/late"}, "Where late tuples go",
        unset="nowhere: counted",
    )  # fmt: skip
    bad: JobSink | None = option(
        Inner(JobSink), None, {"format": "json", "path": "out/failed"},
        "Where rows go of which an expression fails (docs/connections.md)",
        unset="nowhere: the flow stops at the first",
    )  # fmt: skip
    allow: str | None = option(
        Choice(ALLOWED), None, "no-equality",
        'What is else refused for its cost; "no-equality": a join that may look at every pair of rows in the windows',
    )  # fmt: skip
    recovered: bool = option(
        Flag(), False, True, "Whether results carry the columns `recovered` and `epoch` (docs/memory.md)"
    )


@dataclass(frozen=True)
class Settings(Checked):
    """How the controller reads load and when its rules fire: `[control]`. Times in seconds, shares between 0 and 1."""

    every: int = option(
        Count(), 10, 5,
        "Epochs in a reorganization epoch (WSJ table 1: t_r = 20 s of t_d = 2 s; its section VI-A says 4 s)",
    )  # fmt: skip
    epoch_s: float | None = option(
        Number(above=0), None, 2.0, "How long an epoch may take (WSJ's t_d)",
        unset="the trigger's interval, if it has one",
    )  # fmt: skip
    buffer_epochs: float = option(
        Number(above=0), 0.5, 1.0, "How much excess busy time is a full buffer, in epochs (ours)"
    )
    buffer_bytes: int = option(Count(), 1 << 20, 1 << 22, "The buffer of a slot that has one (WSJ VI-A: 1 MB)")
    supplier_above: float = option(
        Number(above=0, below=1), 0.5, 0.6, "Th_sup of WSJ IV-C, on occupancy (table 1: 0.5)"
    )
    consumer_below: float = option(Number(least=0, below=1), 0.01, 0.05, "Th_con of WSJ IV-C (table 1: 0.01)")
    choice: Literal["even", "random"] = option(
        Choice(("even", "random")), "even", "random",
        "Which group a supplier yields: the one that best evens the pair, or a random one as in WSJ",
    )  # fmt: skip
    groups_at_once: int = option(
        Count(), 1, 4,
        "How many groups a supplier may yield at once (WSJ: one); with 64 groups over few slots, 4 to 8 are as good",
    )  # fmt: skip
    margin: float = option(
        Number(least=0, below=1), 0.05, 0.1,
        "A move leaves the supplier's load above the consumer's by this share (ours)",
    )  # fmt: skip
    certainty: float = option(
        Number(least=0), 4.0, 0.0,
        "By how many standard errors of its epochs a load must exceed another before anything moves (ours; WSJ: 0)",
    )  # fmt: skip
    least_s: float = option(
        Number(least=0), 0.05, 0.2, "A slot that is busy for less than this in an epoch yields nothing (ours; WSJ: 0)"
    )
    min_span_s: float = option(
        Number(least=0), 0.0, 15.0, "The least time between two adaptations (D-CAPE 5.2: 15 to 45 s)"
    )
    splitting: bool = option(Flag(), True, False, "Whether groups are split and merged (WSJ IV-D)")
    split_above: float = option(
        Number(least=0), 0.5, 0.4, "A group with more than this share of an epoch is too large to be placed well (ours)"
    )
    merge_below: float = option(
        Number(least=0), 0.1, 0.05,
        "Buddies that together need less than this share of an epoch are merged again (ours)",
    )  # fmt: skip
    theta: str | int | None = option(
        Size(), None, "1.5 MB",
        "Groups are split above 2 theta of state, and merged with their buddies below theta (WSJ IV-D)",
        unset="by load",
    )  # fmt: skip
    delta: float | None = option(
        Number(above=0, most=1), None, 0.8,
        "A slot that holds more than this share of its memory hands half of a group to a partner (DHTJoin 6)",
        unset="memory is balanced by memory_ratio alone",
    )  # fmt: skip
    max_depth: int = option(Count(0, 64), 24, 16, "No group is split beyond this many leading bits (ours)")
    declustering: bool = option(Flag(), False, True, "Whether the number of slots changes (WSJ V-A)")
    declustering_rule: str = option(
        Choice(DECLUSTERING), "steady", "paper",
        'When a slot is given up: "paper" (WSJ V-A) whenever nobody is a supplier; "steady" if the others can do it',
    )  # fmt: skip
    release: bool = option(
        Flag(), False, True, "Whether executors without a slot are ended, and asked for again as slots come (WSJ V-A)"
    )
    beta: float = option(
        Number(above=0, below=1), 0.5, 0.3, "Granularity of declustering (WSJ V-A): grow when N_sup > beta N_con"
    )
    min_slots: int = option(Count(), 1, 2, "No fewer slots than this")
    max_slots: int = option(Count(), 1024, 16, "No more slots than this")
    shrink_below: float = option(
        Number(above=0), 0.7, 0.5,
        "Give a slot up if the others would be busy for at most this share of an epoch (ours; WSJ: always)",
    )  # fmt: skip
    patience: int = option(Count(), 2, 3, "Reorganization epochs in a row that agree before the slots change (WSJ: 1)")
    memory_bytes: int | None = option(
        Count(), None, 1 << 29, "The state a slot may hold", unset="[flow] memory if given; else memory is not balanced"
    )
    memory_above: float = option(
        Number(least=0, most=1), 0.5, 0.6,
        "Memory is balanced once the fullest slot holds more than this share of it (ours)",
    )  # fmt: skip
    memory_ratio: float = option(
        Number(above=0, below=1), 0.8, 0.7, "theta_d of D-CAPE 5.1: balance when M_l / M_m is below it"
    )
    disk: Disk = option(
        Choice(get_args(Disk)), "none", "lazy",
        "What the controller pushes to disk (D-CAPE 6): nothing, what does not fit, or poor groups early too",
    )  # fmt: skip
    spill_above: float = option(
        Number(above=0, most=1), 1.0, 0.9, "theta_m of D-CAPE 6: a slot with more than this share of its memory pushes"
    )
    spill_share: float | None = option(
        Number(above=0, most=1), None, 0.2, "The share of its state that a slot then pushes (D-CAPE 4.4: 30%)",
        unset="[flow] spill_share",
    )  # fmt: skip
    idle_after: int | None = option(
        Count(0), None, 100, "theta_t of D-CAPE 4.3, in epochs: a group without a new tuple for longer goes first",
        unset="[flow] idle_after",
    )  # fmt: skip
    push_by: str | None = option(
        Choice(PUSHED), None, "random", "Which groups a slot pushes first (D-CAPE 4.3, 4.4)", unset="[flow] push_by"
    )
    rate_ratio: float = option(
        Number(above=1), 2.0, 3.0,
        "theta_f of D-CAPE 6: push the poor groups of slots whose groups give that many times fewer results",
    )  # fmt: skip
    query_bytes: int | None = option(
        Count(), None, 1 << 30, "M_q of D-CAPE 6: all state of the queries", unset="what there is so far"
    )
    move_spilled: bool = option(
        Flag(), False, True, "Whether a group with inactive generations may be moved (D-CAPE 6; on Spark it always is)"
    )

    @property
    def budget(self) -> BudgetOptions:
        """What is pushed, as a flow says it; what is not said is a flow's default."""
        said = {name: vars(self)[name] for name in ("spill_share", "idle_after", "push_by")}
        return BudgetOptions(**{name: value for name, value in said.items() if value is not None})

    def check_together(self) -> None:
        """Thresholds that would undo each other."""
        if self.consumer_below >= self.supplier_above:
            self._refuse("consumer_below", f"below supplier_above, which is {self.supplier_above:g}")
        if self.merge_below > self.split_above / 2:
            self._refuse("merge_below", "at most half of split_above, or groups would split and merge")
        if self.delta is not None and self.theta is not None:
            self._refuse("delta", "no theta beside it: each of them says when groups are split")
        if self.min_slots > self.max_slots:
            self._refuse("min_slots", f"at most max_slots, which is {self.max_slots}")

    def _refuse(self, name: str, expected: str) -> None:
        raise InputError(f"{name} is {vars(self)[name]!r}", expected, "change one of the two; docs/options.md has both")


@dataclass(frozen=True)
class _Enabled(Checked):
    enabled: bool = option(Flag(), True, False, "Whether there is a controller")


@dataclass(frozen=True)
class JobControl(Settings, _Enabled):
    """`[control]`: whether there is a controller, and its settings."""

    @property
    def settings(self) -> Settings:
        """The settings, as the controller takes them."""
        return chosen(Settings, vars(self))
