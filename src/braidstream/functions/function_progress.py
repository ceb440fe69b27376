"""What there is to say of an epoch of a flow's functions, for handles, views and logs; `epoch.progress` is of joins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from braidstream.control.estimate import Interval
from braidstream.epoch.lateness import Lateness, late_in_all, late_warnings
from braidstream.functions.chains import Chain
from braidstream.functions.nodes import NodeReport
from braidstream.functions.slow_nodes import given_up_by, slow_warnings
from braidstream.state.history import Entry, Words
from braidstream.state.manifest import Manifest

__all__ = ["FunctionProgress"]


@dataclass(frozen=True)
class FunctionProgress:
    """One epoch of a function, or of several that feed one another."""

    epoch: int
    plan: str
    rows: Mapping[str, int]
    """Samples (or rows) read, by stream."""
    late: Mapping[str, int]
    null_rows: int
    windows: int
    """Of the first function."""
    results: int
    """Of the last one."""
    given_up: int
    """Windows of any function without a result that its stream went on without."""
    lost: int
    deferred: int
    waiting: int
    """Windows at the last nodes of functions that are neither results nor given up."""
    watermark: int | None
    state_bytes: int
    seconds: Mapping[str, float]
    """Time of the steps compute, deliver, commit, and in total."""
    nodes: tuple[NodeReport, ...]
    """What each node did, with times and bytes."""
    warnings: tuple[str, ...] = ()
    """More than 1% of the stream's samples were late, in this epoch or in all so far; a node that is given up."""
    slow: Mapping[str, int] = field(default_factory=dict)
    """Nodes whose windows are given up in the next epoch, by their names, each with the last epoch of that."""

    @property
    def step(self) -> int:
        """Always 0: functions push no state, so no step of a clean-up comes after their epochs."""
        return 0

    @property
    def untimed(self) -> Mapping[str, int]:
        """None: samples without a time are no samples (`null_rows`)."""
        return {}

    @property
    def bad(self) -> Mapping[str, int]:
        """None: a function has no output for rows that fail."""
        return {}

    @property
    def late_by(self) -> Mapping[str, int]:
        """None: by how much samples were late is not measured."""
        return {}

    @property
    def state_rows(self) -> int | None:
        """None: state is windows, of any length."""
        return None

    @property
    def completeness_so_far(self) -> Mapping[str, Interval]:
        """None: functions shed nothing."""
        return {}

    @property
    def rows_per_s(self) -> float:
        """Rows through this epoch, per second."""
        return sum(self.rows.values()) / max(self.seconds["total"], 1e-9)

    def entry(self, newest: Mapping[str, int], delays_us: Mapping[str, int]) -> Entry:
        """What the history keeps of it: results for matches, and what all nodes of its stages took."""
        seconds = {"join_s" if name == "compute" else f"{name}_s": value for name, value in self.seconds.items()}
        numbers = {**seconds, "state_bytes": self.state_bytes, "active_bytes": self.state_bytes,
                   "n_slots": len(self.nodes), "watermark": self.watermark}  # fmt: skip
        names = list(self.rows)
        lists: dict[str, list[Any]] = {
            "streams": names,
            "stream_rows": [self.rows[name] for name in names],
            "stream_late": [self.late.get(name, 0) for name in names],
            "stream_newest": [newest.get(name) for name in names],
            "stream_delay": [delays_us.get(name, 0) for name in names],
            "queries": [self.plan],
            "query_matches": [self.results],
        }
        told = Words(warnings=self.warnings)
        return Entry("epoch", 0, self.epoch, 0, numbers, lists, told)

    @classmethod
    def of(
        cls,
        chain: Chain,
        before: Manifest,
        after: Manifest,
        nodes: tuple[NodeReport, ...],
        seconds: Mapping[str, float],
    ) -> FunctionProgress:
        """Of what nodes said of an epoch, and the manifests before and after it."""
        first = next(node for node in nodes if (node.function, node.stage) == (0, 0))
        lasts = [(number, len(setup.plan.stages) - 1) for number, setup in enumerate(chain.setups)]
        ends = [node for node in nodes if (node.function, node.stage) in lasts]
        last = max(ends, key=lambda node: node.function)
        stream = chain.setups[0].stream
        late = {stream: Lateness(first.samples, first.late_samples)}
        return cls(
            epoch=after.epoch,
            plan=chain.strategy,
            rows={stream: first.samples},
            late={stream: first.late_samples},
            null_rows=first.null_rows,
            windows=first.windows,
            results=last.results,
            given_up=sum(given_up_by([n for n in nodes if n.function == number]) for number, _ in lasts),
            lost=sum(node.lost for node in nodes),
            deferred=sum(node.deferred for node in nodes),
            waiting=sum(node.waiting for node in ends),
            watermark=after.watermark,
            state_bytes=sum(segment.bytes for segment in after.segments),
            seconds=seconds,
            nodes=nodes,
            warnings=(
                *late_warnings(after.epoch, late, late_in_all(after)),
                *slow_warnings(chain, before.notes.slow, after.notes.slow),
            ),
            slow=after.notes.slow,
        )
