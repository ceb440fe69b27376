"""What `braid doctor` looks at, a function each: the driver's side, a cluster's, and folders.

A finding says what was looked at, whether it holds, what was seen, and what to do where it does not. `holds` is None
for what only matters to some: an extra that is not installed.

Invariant: a check never raises for what it looks for; a folder is left as it was found. Cost: those of the driver
tenths of a second; those of a cluster one small job on it.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from re import findall, match
from typing import Any

from braidstream import __version__
from braidstream.cli import words
from braidstream.cli.installed import OLDEST_JAVA, find_java, version_of
from braidstream.errors import BraidstreamError

__all__ = ["Finding", "cluster", "extras", "here", "place"]

_GIB = 1 << 30
_LEAST_DISK, _LEAST_MEMORY = _GIB, _GIB
_RELEASED = datetime(2026, 1, 1, tzinfo=timezone.utc)
"""A clock that shows an earlier time is wrong."""
_MOST_SKEW_S = 5.0
_PYTHONS = ((3, 10), (3, 13))
_APT = "on Debian and Ubuntu: sudo apt-get install openjdk-17-jre-headless"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    holds: bool | None
    found: str
    remedy: str = ""


def here() -> Iterator[Finding]:
    """What the driver needs, before any Spark is started."""
    yield _java()
    yield _python()
    yield from _packages()
    yield _clock()
    yield _memory()
    yield _disk("scratch space", Path(os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()))


def extras() -> Iterator[Finding]:
    """What sinks, object stores, watching and pictures need; nobody needs all of it."""
    from braidstream.spark.extras import EXTRAS  # noqa: PLC0415

    watching = {"dashboard": "bokeh", "metrics": "prometheus_client"}
    known = {**EXTRAS, "s3": "obstore", **watching, "plot": "matplotlib", "demo": "duckdb"}
    for name, module in known.items():
        version = version_of(module.replace("_", "-"))
        remedy = "" if version else f"if you want it: pip install 'braidstream[{name}]'"
        yield Finding(f"extra {name}", True if version else None, version or "not installed", remedy)


def place(root: str) -> Iterator[Finding]:
    """Whether a folder or an address serves for a checkpoint: written, read, renamed, deleted."""
    from braidstream.state.files import Files  # noqa: PLC0415  (slow to import)

    name = f"folder {root}"
    probe = f".braid-doctor-{uuid.uuid4().hex}"
    remedy = "name a folder that this process may write to"
    if "://" in root:
        remedy = "check the address, the network, and the credentials in the environment (for S3: AWS_*)"
    try:
        nearest = _nearest_folder(root)
        files = Files(nearest)
        began = time.monotonic()
        files.replace(probe, b"one")
        files.replace(probe, b"two")
        try:
            holds = files.read(probe) == b"two"
        finally:
            files.delete(probe)
    except (OSError, BraidstreamError) as error:
        yield Finding(name, False, " ".join(str(error).split()), remedy)
        return
    took = f"written, read and deleted in {(time.monotonic() - began) * 1000:.0f} ms"
    if not files.has_renames:
        took += "; an object store: a lease is checked before each act, but not in one step with it"
    yield Finding(name, holds, took, "" if holds else "what was written is not what is read: use another file system")
    if files.is_local:
        yield _disk(f"room in {root}", Path(nearest))


def cluster(spark: Any, places: Sequence[str]) -> Iterator[Finding]:
    """What Spark's workers have: Python, packages, clock, and the folders, seen from there."""
    from braidstream.spark.session import cores, default_memory, is_single_executor  # noqa: PLC0415

    context = spark.sparkContext
    heap = int(context._jvm.java.lang.Runtime.getRuntime().maxMemory())
    yield Finding("Spark", True, f"{context.version}, {context.master}, {words.count(cores(spark), 'core')}")
    budget = default_memory(spark)
    yield Finding("driver's heap", True, f"{words.size(heap)}; a slot may hold {words.size(budget)} of state")
    local = [root for root in places if "://" not in root] if not is_single_executor(spark) else []
    try:
        seen = _asked(spark, cores(spark), local)
    except Exception as error:  # whatever a worker failed with
        yield _workers_fail(error)
        return
    yield from _workers(seen, time.time())
    for root in local:
        blind = sorted({one["host"] for one in seen if root not in one["places"]})
        found = f"not there on {', '.join(blind)}" if blind else "there on every worker"
        remedy = "use a folder that all machines share, or an address such as s3://bucket/folder" if blind else ""
        yield Finding(f"folder {root} on workers", not blind, found, remedy)


def _java() -> Finding:
    java = find_java()
    if java.trouble:
        remedy = f"install Java {OLDEST_JAVA} or later ({_APT}), or set JAVA_HOME to one"
        return Finding("Java", False, java.trouble, remedy)
    holds = java.major >= OLDEST_JAVA
    remedy = "" if holds else f"Spark needs Java {OLDEST_JAVA} or later: {_APT}; or set JAVA_HOME to a newer one"
    return Finding("Java", holds, f"{java.version} ({java.command})", remedy)


def _python() -> Finding:
    lowest, highest = _PYTHONS
    holds = lowest <= sys.version_info[:2] <= highest
    known = f"{'.'.join(map(str, lowest))} to {'.'.join(map(str, highest))}"
    return Finding(
        "Python", holds, f"{platform.python_version()} ({sys.executable})", "" if holds else f"use Python {known}"
    )


def _packages() -> Iterator[Finding]:
    """The packages that Braidstream requires, in versions that it was made for."""
    for line in _required():
        name = match(r"[\w.-]+", line)
        if name is None:
            continue
        version = version_of(name[0])
        holds = bool(version) and _fits(version, line)
        remedy = "" if holds else f"pip install '{line.partition(';')[0].strip()}'"
        yield Finding(name[0], holds, version or "not installed", remedy)


def _required() -> Iterable[str]:
    try:
        lines = metadata.requires("braidstream") or []
    except metadata.PackageNotFoundError:  # run from a folder of sources
        return []
    return [line for line in lines if "extra ==" not in line and "python_version <" not in line]


def _fits(version: str, requirement: str) -> bool:
    """Whether a version is within the bounds of a requirement such as `pyspark<5,>=4.1`."""
    own = _numbers(version)
    for sign, bound in findall(r"(>=|<)\s*([\d.]+)", requirement.partition(";")[0]):
        if (own >= _numbers(bound)) != (sign == ">="):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in findall(r"\d+", version)[:3])


def _clock() -> Finding:
    now = datetime.now(timezone.utc)
    holds = now > _RELEASED
    return Finding("clock", holds, f"{now:%Y-%m-%d %H:%M:%S} UTC", "" if holds else "set the clock of this machine")


def _memory() -> Finding:
    pages = {name: os.sysconf(name) for name in ("SC_PHYS_PAGES", "SC_AVPHYS_PAGES") if name in os.sysconf_names}
    page = os.sysconf("SC_PAGE_SIZE")
    total, free = pages.get("SC_PHYS_PAGES", 0) * page, _available() or pages.get("SC_AVPHYS_PAGES", 0) * page
    holds = not free or free >= _LEAST_MEMORY
    found = f"{words.size(total)}, {words.size(free)} of it available"
    return Finding("memory", holds, found, "" if holds else "end other programs: Spark alone takes a gigabyte")


def _available() -> int:
    """What programs may still take, by Linux's own count; 0 elsewhere."""
    file = Path("/proc/meminfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), 0)


def _disk(name: str, folder: Path) -> Finding:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding(name, False, f"{folder}: {error.strerror}", "set SPARK_LOCAL_DIRS to a folder that is there")
    holds = free >= _LEAST_DISK
    return Finding(name, holds, f"{words.size(free)} free in {folder}", "" if holds else "free some space there")


def _nearest_folder(root: str) -> str:
    """The folder itself, or the nearest one above it that is there: nothing is made."""
    if "://" in root:
        return root
    path = Path(root).absolute()
    return str(next(one for one in (path, *path.parents) if one.exists()))


def _asked(spark: Any, n_tasks: int, places: Sequence[str]) -> list[dict[str, Any]]:
    """What each worker says of itself. The function goes there by value: Braidstream may be missing there."""

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib  # noqa: PLC0415
        import importlib.metadata as installed  # noqa: PLC0415
        import json as text  # noqa: PLC0415
        import pathlib  # noqa: PLC0415
        import platform as machine  # noqa: PLC0415
        import time as clock  # noqa: PLC0415

        import pyarrow as arrow  # noqa: PLC0415

        known = {one.metadata["Name"]: one.version for one in installed.distributions()}
        try:
            known["braidstream"] = importlib.import_module("braidstream").__version__
        except ImportError:
            known["braidstream"] = ""
        said = {
            "host": machine.node(),
            "python": machine.python_version(),
            "packages": {name: known.get(name, "") for name in ("braidstream", "pyarrow", "numpy")},
            "clock": clock.time(),
            "places": [root for root in places if pathlib.Path(root).absolute().parent.exists()],
        }
        for _ in batches:
            pass
        yield arrow.RecordBatch.from_pylist([{"said": text.dumps(said)}])

    rows = spark.range(n_tasks * 2).repartition(n_tasks).mapInArrow(look, "said string").collect()
    return [json.loads(row.said) for row in rows]


def _workers(seen: Sequence[dict[str, Any]], now: float) -> Iterator[Finding]:
    hosts = {one["host"] for one in seen}
    pythons = {one["python"] for one in seen}
    same = {version.rpartition(".")[0] for version in pythons} == {platform.python_version().rpartition(".")[0]}
    fix = f"set PYSPARK_PYTHON to a Python {platform.python_version().rpartition('.')[0]} on every machine"
    shown = f"{', '.join(sorted(pythons))} on {words.count(len(hosts), 'machine')}"
    yield Finding("Python on workers", same, shown, "" if same else fix)
    ours = {"braidstream": __version__, "pyarrow": version_of("pyarrow"), "numpy": version_of("numpy")}
    for name, version in ours.items():
        theirs = {one["packages"][name] or "not installed" for one in seen}
        holds = theirs == {version} if name == "braidstream" else "not installed" not in theirs
        remedy = "" if holds else f"install {name} {version} for {' and '.join(sorted(pythons))} on every machine"
        yield Finding(f"{name} on workers", holds, ", ".join(sorted(theirs)), remedy)
    apart = max(now - min(one["clock"] for one in seen), max(one["clock"] for one in seen) - now)
    is_near = apart < _MOST_SKEW_S + 60 * (len(hosts) == 1)  # on one machine there is one clock, and jobs that wait
    found = "the driver's" if len(hosts) == 1 else f"at most {apart:.1f} s from the driver's"
    yield Finding("clock on workers", is_near, found, "" if is_near else "set the clocks by NTP")


def _workers_fail(error: Exception) -> Finding:
    from braidstream.spark.causes import one_line  # noqa: PLC0415

    remedy = "set PYSPARK_PYTHON to an interpreter with braidstream on every machine; --verbose shows Spark's own words"
    return Finding("Python on workers", False, one_line(error), remedy)
