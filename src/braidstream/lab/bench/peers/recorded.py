"""Measurements as they are kept in a file, and what a further run adds to them.

A run may check answers, time systems, or both, and may be of some workloads only; so a table can be made in pieces.
What one piece says of a system on a workload takes the place of what was there, but what it did not do is kept: a timed
run keeps the check before it, and a check keeps the rate. An answer that was found wrong stays until it is checked
again.

Invariant: ratios are over the rate of Spark's join in memory in the same list.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path

from braidstream.lab.bench.cases import SPARK_MEMORY
from braidstream.lab.bench.measure import Measurement

__all__ = ["WRONG", "merged", "read", "with_ratios"]

WRONG = "wrong"
_NAMES = {field.name for field in fields(Measurement)}


def read(file: Path) -> list[Measurement]:
    """What a file has; nothing where there is none."""
    entries = json.loads(file.read_text()) if file.exists() else []
    return [Measurement(**{name: value for name, value in entry.items() if name in _NAMES}) for entry in entries]


def merged(before: Iterable[Measurement], new: Iterable[Measurement], order: Sequence[str]) -> list[Measurement]:
    """Both, workloads in an order."""
    kept = {(entry.workload, entry.system): entry for entry in before}
    for entry in new:
        place = entry.workload, entry.system
        kept[place] = _joined(kept[place], entry) if place in kept else entry
    return with_ratios(sorted(kept.values(), key=lambda entry: order.index(entry.workload)))


def with_ratios(entries: Sequence[Measurement]) -> list[Measurement]:
    """Each with its rate over that of Spark in memory on the same workload."""
    base = {entry.workload: entry.rows_per_s for entry in entries if entry.system == SPARK_MEMORY}
    return [replace(entry, ratio_to_spark_memory=_ratio(entry, base.get(entry.workload))) for entry in entries]


def _ratio(entry: Measurement, base: float | None) -> float | None:
    return entry.rows_per_s / base if entry.rows_per_s and base else None


def _joined(before: Measurement, entry: Measurement) -> Measurement:
    if entry.status != "ok" or entry.checked:
        is_timed_before = entry.status == before.status == "ok" and entry.rows_per_s is None
        return replace(before, checked=entry.checked, version=entry.version) if is_timed_before else entry
    if before.status == WRONG:
        return before
    return replace(entry, checked=before.checked, version=entry.version or before.version)
