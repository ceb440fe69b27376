"""What a result depends on beside the code: the machine, in general terms, and the versions of what runs.

No host name, user or address: a report can be given away.
"""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

from braidstream import __version__

__all__ = ["machine", "versions"]

_PACKAGES = ("pyspark", "pyarrow", "numpy", "datasketches", "matplotlib")


@cache
def machine() -> dict[str, str]:
    """Processor, cores that may be used, memory and system."""
    described = {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    return {name: value for name, value in described.items() if value}


@cache
def versions() -> dict[str, str]:
    """Braidstream, Python and the packages that compute."""
    found = {"braidstream": __version__, "python": platform.python_version()}
    installed = {one.metadata["Name"] for one in metadata.distributions()}
    return found | {name: metadata.version(name) for name in _PACKAGES if name in installed}


def _processor() -> str:
    return _value_of(Path("/proc/cpuinfo"), "model name") or platform.processor() or platform.machine()


def _memory() -> str:
    total_kb = _value_of(Path("/proc/meminfo"), "MemTotal").partition(" ")[0]
    return f"{int(total_kb) / 1e6:.0f} GB" if total_kb.isdigit() else ""


def _value_of(path: Path, name: str) -> str:
    """The value after `name:` in one of Linux's files; nothing elsewhere."""
    if not path.is_file():
        return ""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
