"""One Spark session for the whole run, and `run_join`: a query over scripted epochs on every backend.

Tests marked `slow` run when asked for: `make test ARGS=--slow`, or `-m slow` for these alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.backends import Backend, InProcess, LocalSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests that take minutes")
    parser.addoption("--seed", type=int, default=0, help="what the tests of generated queries draw from")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow") or "slow" in config.getoption("-m"):
        return
    slow = [item for item in items if "slow" in item.keywords]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if "slow" not in item.keywords]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two local cores. Tests must leave its settings as they were."""
    from braidstream.spark.session import local_session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    scratch = tmp_path_factory.mktemp("spark")
    places = {"spark.sql.warehouse.dir": str(scratch / "warehouse"), "spark.local.dir": str(scratch / "local")}
    session = local_session("local[2]", "tests", {**SETTINGS, **places})
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(params=["in process", pytest.param("spark", marks=pytest.mark.spark)])
def run_join(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """Runs a case's query epoch by epoch and gives its results: in one process by the hundred, on Spark by dozens."""
    if request.param == "in process":
        return InProcess(tmp_path)
    return LocalSpark(tmp_path, request.getfixturevalue("spark"))
