"""What is installed here: Java, and the versions of what Braidstream stands on, without starting any of it.

Cost: a tenth of a second, most of it Java's own start.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from braidstream import __version__

__all__ = ["OLDEST_JAVA", "Java", "find_java", "version_of", "versions"]

OLDEST_JAVA = 17
_VERSION = re.compile(r'version "(?P<version>(?:1\.)?(?P<major>\d+)[^"]*)"')


@dataclass(frozen=True)
class Java:
    """The Java that Spark would start, or why there is none."""

    command: str
    version: str = ""
    major: int = 0
    trouble: str = ""


def find_java() -> Java:
    """The Java in JAVA_HOME if that is set, and only otherwise the one on the PATH: as Spark looks for it."""
    home = os.environ.get("JAVA_HOME", "")
    command = str(Path(home) / "bin" / "java") if home else "java"
    try:
        ran = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        where = f"JAVA_HOME is {home}, and" if home else "JAVA_HOME is not set, and on the PATH"
        return Java(command, trouble=f"{where} no Java runs ({error})")
    found = _VERSION.search(ran.stderr + ran.stdout)
    if found is None:
        return Java(command, trouble=f"{command} -version says no version")
    return Java(command, found["version"].removeprefix("1."), int(found["major"]))


def version_of(package: str) -> str:
    """The installed version of a package; nothing where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def versions() -> dict[str, str]:
    """Braidstream and what it stands on."""
    missing = "not installed"
    return {
        "braid": __version__,
        "Spark": version_of("pyspark") or missing,
        "Java": find_java().version or "none found",
        "Arrow": version_of("pyarrow") or missing,
        "Python": platform.python_version(),
    }
