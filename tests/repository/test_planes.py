"""The planes without Spark load without Spark, whatever their imports bring along."""

from __future__ import annotations

import subprocess
import sys

PLANES = ("model", "kernels", "control", "state", "slot", "epoch", "query", "plan", "functions", "lab.sim")

LOAD = """
import importlib, pkgutil, sys
import braidstream
for plane in sys.argv[1:]:
    package = importlib.import_module(f"braidstream.{plane}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    if "pyspark" in sys.modules:
        sys.exit(f"braidstream.{plane} brought pyspark along")
"""


def load(*planes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", LOAD, *planes], capture_output=True, text=True, check=False)


def test_no_plane_but_spark_loads_pyspark() -> None:
    loaded = load(*PLANES)
    assert loaded.returncode == 0, loaded.stderr


def test_what_the_command_needs_to_show_its_help_does_not_load_pyspark() -> None:
    program = "import sys, braidstream.cli; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
