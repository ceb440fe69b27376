"""Records what a flow does into the history of its checkpoint (`state.history`), beside the epochs and not in them.

An epoch that is over leaves what it knows in a queue, which costs it nothing; a thread makes entries of that and writes
them, at most once in `SPAN_S`: tiny epochs share a file. What cannot be written is dropped: the flow goes on.

Invariant: nothing here is read by an epoch, and nothing is written without the lease, nor with a secret in it.
Cost: O(slots and groups that
reported) an epoch, O(groups) where they were placed anew, in the thread.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

import numpy as np

from braidstream.epoch.progress import EpochProgress
from braidstream.errors import LeaseLost
from braidstream.hiding import scrubbed
from braidstream.model.instructions import Decision, instruction_to_json
from braidstream.model.reports import Report, SlotReport, brought_by, slot_reports
from braidstream.model.values import changed
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.history import Deciding, Entry, HeavyWords, HistoryWriter, Words
from braidstream.state.manifest import Manifest

__all__ = ["NO_RECORDER", "SPAN_S", "Recorder", "Told"]

SPAN_S = 1.0
"""The least time between two files."""
_MOST_GROUPS = 8192
"""Of so many groups the load is told, those with the most."""
_MOST_INSTRUCTIONS = 64
_WAITING = 4096
_log = logging.getLogger("braidstream")


@dataclass(frozen=True)
class Told:
    """What an epoch of joins leaves for the record."""

    before: Manifest
    after: Manifest
    reports: Sequence[Report]
    progress: EpochProgress
    decisions: Sequence[Decision] = ()
    delays_us: Mapping[str, int] = field(default_factory=dict)
    budget_bytes: int | None = None
    at_us: int = 0


class Recorder:
    """Records one flow, over all starts of its streaming query. Without a checkpoint it does nothing."""

    def __init__(self, checkpoint: Checkpoint | None = None) -> None:
        self._is_on = checkpoint is not None and checkpoint.history > 0
        self._writer = None if checkpoint is None else HistoryWriter(checkpoint.files, checkpoint.history)
        self._waiting: deque[Told | Entry] = deque(maxlen=_WAITING)
        self._wake, self._writing = threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_over = False
        self._wrote_at = -SPAN_S
        self._has_layout = False
        self._queries: dict[str, str] | None = None
        self.engine_s: Callable[[], float | None] = lambda: None
        """What the engine itself needed beside the epoch, of late."""

    def runs(self, epoch: int, queries: Mapping[str, str], told: Words) -> None:
        """After an epoch these queries run, each with its text: a start, or a change while the flow runs."""
        before, self._queries = self._queries, dict(queries)
        if before is None:
            who = changed(told, host=socket.gethostname(), process=os.getpid(), queries=self._queries)
            self._add(Entry("start", _now(), epoch, told=who))
            return
        came = {name: text for name, text in queries.items() if before.get(name) != text}
        went = tuple(name for name in before if name not in queries)
        self._add(Entry("queries", _now(), epoch, told=Words(came=came, went=went)))

    def epoch(self, told: Told) -> None:
        """An epoch, or a step after one, was committed."""
        self._add(replace(told, at_us=_now()))

    def entry(self, entry: Entry) -> None:
        """The same, ready made."""
        self._add(replace(entry, at_us=_now()))

    def end(self, epoch: int, how: str, cause: str = "") -> None:
        """The flow has ended: the last that is recorded, and written at once."""
        if self._is_on and not self._is_over:
            self._add(Entry("end", _now(), epoch, told=Words(how=how, cause=scrubbed(cause))))
            self._is_over = True
            self._wake.set()
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        with self._writing:
            waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if waiting and self._writer is not None:
                try:
                    self._writer.append(self._entries(waiting))
                except (OSError, LeaseLost) as error:
                    _log.debug("the history was not written: %s", error)
                    self._has_layout = False
            self._wrote_at = time.monotonic()

    def _add(self, one: Told | Entry) -> None:
        if not self._is_on or self._is_over:
            return
        self._waiting.append(one)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="braidstream-history", daemon=True)
            self._thread.start()
        self._wake.set()

    def _run(self) -> None:
        while not self._is_over:
            self._wake.wait()
            self._wake.clear()
            left = self._wrote_at + SPAN_S - time.monotonic()
            if left > 0 and not self._is_over:
                time.sleep(left)
            try:
                self.flush()
            except Exception:  # a history that fails is no reason for a flow to fail
                _log.exception("the history of the flow was not written")

    def _entries(self, waiting: Sequence[Told | Entry]) -> list[Entry]:
        spark_s: float | None = None
        with suppress(Exception):  # its process may be gone
            spark_s = self.engine_s()
        made: list[Entry] = []
        for one in waiting:
            if isinstance(one, Told):
                made.append(entry_of(one, spark_s, with_layout=not self._has_layout))
                self._has_layout = True
            else:
                made.append(one)
        epochs = [at for at, one in enumerate(made) if one.kind == "epoch"]
        if epochs:
            loads = _loads([one for one in waiting if isinstance(one, Told)])
            made[epochs[-1]] = replace(made[epochs[-1]], lists={**made[epochs[-1]].lists, **loads})
        return made


NO_RECORDER = Recorder()


def entry_of(told: Told, spark_s: float | None = None, *, with_layout: bool) -> Entry:
    """What is kept of an epoch; the layout where it is asked for or has changed."""
    progress, after = told.progress, told.after
    is_placed = with_layout or not _is_same_layout(told.before, after)
    numbers = {
        **{f"{part}_s": seconds for part, seconds in progress.parts.items()},
        "total_s": progress.seconds.get("total", 0.0), "spark_s": spark_s, "spare_s": progress.spare_s,
        "state_rows": progress.state_rows, "state_bytes": progress.state_bytes, "active_bytes": progress.active_bytes,
        "pushed_bytes": progress.inactive_bytes, "pushed_groups": progress.spilled_groups,
        "budget_bytes": told.budget_bytes, "shed_bytes": progress.shed_bytes, "segments": progress.segments,
        "exchanged_bytes": progress.exchanged_bytes, "n_slots": progress.slots, "n_groups": progress.groups,
        "watermark": progress.watermark, "peak_mb": progress.peak_mb,
    }  # fmt: skip
    lists = {**_streams(told), **_queries(progress), **_slots(told, all_of_them=is_placed)}
    if is_placed:
        lists |= _layout(after)
    return Entry("epoch", told.at_us, progress.epoch, progress.step, numbers, lists, _words(told))


def decided_in(decisions: deque[Decision], epoch: int) -> list[Decision]:
    """What was decided after an epoch, the newest of many."""
    return list(takewhile(lambda one: one.epoch == epoch, reversed(decisions)))[::-1]


def _now() -> int:
    return time.time_ns() // 1000


def _is_same_layout(before: Manifest, after: Manifest) -> bool:
    return before.n_slots == after.n_slots and before.directory.columns() == after.directory.columns()


def _streams(told: Told) -> dict[str, Any]:
    progress, newest = told.progress, told.after.newest
    names = sorted({*told.delays_us, *progress.rows, *newest})
    return {
        "streams": names,
        "stream_rows": [progress.rows.get(name, 0) for name in names],
        "stream_late": [progress.late.get(name, 0) for name in names],
        "stream_newest": [newest.get(name) for name in names],
        "stream_delay": [told.delays_us.get(name, 0) for name in names],
    }


def _queries(progress: EpochProgress) -> dict[str, Any]:
    return {"queries": list(progress.matches), "query_matches": list(progress.matches.values())}


def _slots(told: Told, *, all_of_them: bool) -> dict[str, Any]:
    """Those that reported; all of them where groups were placed anew, for then also others hold something else."""
    progress, n_slots = told.progress, told.after.n_slots
    rows, matches, busy = np.zeros(n_slots, np.int64), np.zeros(n_slots, np.int64), np.zeros(n_slots)
    for one in (one for one in told.reports if one.slot < n_slots):
        busy[one.slot] += one.busy_s
        if isinstance(one, SlotReport):
            rows[one.slot] += one.rows
            matches[one.slot] += one.matches
    pushed = np.zeros(n_slots, np.int64)
    if progress.inactive_bytes:
        for (stage, slot), figures in told.after.figures().items():
            if stage >= 0:
                pushed[slot] += int(figures.inactive_bytes)
    own = range(n_slots) if all_of_them else sorted({one.slot for one in told.reports if one.slot < n_slots})
    slots = np.array(own, dtype=np.int64)
    active, cells = (np.array(one or [0] * n_slots, np.int64) for one in (progress.slot_bytes, progress.cell_bytes))
    return {
        "slots": slots, "slot_rows": rows[slots], "slot_matches": matches[slots], "slot_busy_s": busy[slots],
        "slot_active": active[slots] - cells[slots], "slot_cells": cells[slots], "slot_pushed": pushed[slots],
    }  # fmt: skip


def _layout(manifest: Manifest) -> dict[str, Any]:
    columns = manifest.directory.columns()
    return {
        "group_ids": columns.ids,
        "group_slots": columns.slots.astype(np.int64),
        "group_stages": columns.stages.astype(np.int64),
        "group_depths": columns.depths.astype(np.int64),
    }


def _loads(told: Sequence[Told]) -> dict[str, Any]:
    """What epochs that are written together brought to groups, those with the most if there are many."""
    if not told:
        return {}
    brought = brought_by([report for one in told for report in slot_reports(one.reports)])
    ids, at = np.unique(brought.groups, return_inverse=True)
    rows, matches = (np.zeros(len(ids), np.int64) for _ in range(2))
    np.add.at(rows, at, brought.rows)
    np.add.at(matches, at, brought.matches)
    most = np.sort(np.argsort(rows + matches)[-_MOST_GROUPS:])
    return {"loaded_groups": ids[most], "load_rows": rows[most], "load_matches": matches[most]}


def _words(told: Told) -> Words:
    progress = told.progress
    return Words(
        decisions=tuple(map(_deciding, told.decisions)),
        heavy=tuple(HeavyWords(one.key, one.share, one.counts, one.dims, one.slots) for one in progress.heavy),
        complete={name: (one.estimate, one.low, one.high) for name, one in progress.completeness.items()},
        complete_so_far={name: (one.estimate, one.low, one.high) for name, one in progress.completeness_so_far.items()},
        warnings=tuple(map(scrubbed, progress.warnings)),
        idle=progress.idle,
    )


def _deciding(one: Decision) -> Deciding:
    plain = tuple(instruction_to_json(each) for each in one.instructions[:_MOST_INSTRUCTIONS])
    return Deciding(one.rule, one.reason, one.refusal, plain, len(one.instructions))
