"""A long run under a budget: does anything grow?

N epochs of streams with a window that holds four times the budget, so that groups are pushed and cleaned up all the
time. After each epoch: the memory of the driver, of its JVM and of the largest worker, the JVM's heap in use, active
and inactive state, segments, the bytes of the manifest, and the files and bytes below the checkpoint's `segments`.

What it gives: the median of each figure in the second, third and last quarter of the run (the window fills in the
first). The heap is looked at every ten epochs, right after a collection: in between it only ever grows.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from braidstream.lab.bench.process_memory import Sampler, memory_mb
from braidstream.state.manifest import manifest_name

__all__ = ["run_long"]

_QUARTERS = {"second": (0.25, 0.5), "third": (0.5, 0.75), "last": (0.75, 1.0)}
_COLLECTED_EVERY = 10


def run_long(spark: Any, flow: Any, checkpoint: Path, n_epochs: int) -> dict[str, Any]:
    """Run a flow to the end; the figures by quarter."""
    course: list[dict[str, float]] = []
    with Sampler(interval_s=0.05, kept=20) as sampler:
        handle = flow.start(checkpoint)
        while handle.is_active:
            handle.await_termination(0.1)
            last = next((entry for entry in reversed(handle.progress) if not entry.step), None)
            if last is not None and (not course or course[-1]["epoch"] < last.epoch):
                course.append(_figures(spark, sampler, checkpoint, last))
    pushed = [entry.spilled_groups for entry in handle.progress]
    return {
        "matches": handle.totals["q.matches"],
        "seconds_an_epoch": round(float(np.median([entry.seconds["total"] for entry in handle.progress])), 2),
        "pushed_groups": max(pushed),
        **{name: _summary(course, low * n_epochs, high * n_epochs) for name, (low, high) in _QUARTERS.items()},
    }


def _figures(spark: Any, sampler: Sampler, checkpoint: Path, last: Any) -> dict[str, float]:
    newest = {who: sizes for _, who, sizes in sampler.course.copy()}
    files = [path.stat().st_size for path in _files(checkpoint / "segments")]
    manifest = checkpoint / manifest_name(last.epoch)
    return {
        "epoch": last.epoch,
        "driver rss mb": memory_mb(os.getpid())["rss"],
        "jvm rss mb": newest.get("jvm", {}).get("rss", 0.0),
        "heap mb": _heap_mb(spark) if last.epoch % _COLLECTED_EVERY == 0 else np.nan,
        "worker rss mb": newest.get("worker", {}).get("rss", 0.0),
        "worker anonymous mb": newest.get("worker", {}).get("anonymous", 0.0),
        "active mb": last.active_bytes / (1 << 20),
        "inactive mb": last.inactive_bytes / (1 << 20),
        "segments": last.segments,
        "manifest kb": manifest.stat().st_size / 1024 if manifest.exists() else 0.0,
        "segment files": len(files),
        "segment files mb": sum(files) / (1 << 20),
        "seconds": last.seconds["total"],
    }


def _heap_mb(spark: Any) -> float:
    """What is alive in the JVM."""
    spark._jvm.System.gc()
    bean = spark._jvm.java.lang.management.ManagementFactory.getMemoryMXBean()
    return float(bean.getHeapMemoryUsage().getUsed() / (1 << 20))


def _files(folder: Path) -> list[Path]:
    """The files of a folder that others change meanwhile."""
    return [path for path in folder.iterdir() if path.exists()]


def _summary(course: list[dict[str, float]], begin: float, end: float) -> dict[str, float]:
    some = [entry for entry in course if begin <= entry["epoch"] < end]
    kinds = [kind for kind in course[0] if kind != "epoch"]
    return {kind: round(float(np.nanmedian([entry[kind] for entry in some])), 2) for kind in kinds}
