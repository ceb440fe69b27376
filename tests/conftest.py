"""One Spark session for the whole run, and `run_join`: a query over scripted epochs on every backend.

Three tiers. `make test` runs what is quick, with a share of the examples (tests/scale.py). `make test-all` adds the
tests marked `slow` (`--slow`) and takes more examples. What needs many minutes, or measures times and wants a quiet
machine, is marked `acceptance` (`--acceptance`, with all examples): `make test-all ARGS="-m acceptance"` runs it alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests import scale
from tests.backends import Backend, InProcess, LocalSpark
from tests.scale import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.cli.workshop import Braid

# Sessions of tests are short: a JVM that compiles quickly takes a third less of the cores. Child processes inherit it.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
}


# What a test may take before it counts as hanging, unless it says so itself; the others have pyproject's `timeout`.
TIMEOUT_S = {"slow": 600, "acceptance": 4 * 3600}
SHARES = {"acceptance": 1.0, "slow": 0.25}
QUICK_SHARE = 0.1


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests that take minutes")
    parser.addoption("--acceptance", action="store_true", help="also run the tests that take up to hours")
    parser.addoption(
        "--world", action="store_true", help="also collect tests/world, which needs what make world sets up"
    )
    parser.addoption("--examples-scale", type=float, help="the share of examples to take")
    parser.addoption("--seed", type=int, default=0, help="what the tests of generated queries draw from")


def pytest_configure(config: pytest.Config) -> None:
    """The tests ask for their number of examples when they are imported."""
    asked = config.getoption("--examples-scale")
    shares = [share for tier, share in SHARES.items() if wanted(config, tier)]
    scale.SCALE = asked if asked is not None else max(shares, default=QUICK_SHARE)
    slow = [HealthCheck.too_slow]  # and no deadline: a busy machine is no failure
    settings.register_profile("scaled", max_examples=examples(100), deadline=None, suppress_health_check=slow)
    settings.load_profile("scaled")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Tests against real servers import packages that only `make world` installs."""
    is_world = collection_path == Path(__file__).with_name("world")
    return True if is_world and not config.getoption("--world") else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out: a run of all tests is not one of those against servers."""
    if not config.getoption("--world"):
        terminalreporter.write_line("tests/world: not run; make world")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [tier for tier in TIMEOUT_S if not wanted(config, tier)]
    kept = [item for item in items if not any(tier in item.keywords for tier in left_out)]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept
    for item in items:
        limits = [limit_s for tier, limit_s in TIMEOUT_S.items() if tier in item.keywords]
        if limits and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(max(limits)))


def wanted(config: pytest.Config, tier: str) -> bool:
    """Whether a tier is asked for; who asks for acceptance also gets what is slow."""
    tiers = {tier, "acceptance"}
    return any(config.getoption(f"--{one}") or one in config.getoption("-m") for one in tiers)


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


@pytest.fixture
def braid(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Braid:
    """The `braid` command, run in this process."""
    from tests.cli.workshop import Braid

    return Braid(capsys, monkeypatch)


@pytest.fixture(params=["in process", pytest.param("spark", marks=pytest.mark.spark)])
def run_join(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """Runs a case's query epoch by epoch and gives its results: in one process by the hundred, on Spark by dozens."""
    if request.param == "in process":
        return InProcess(tmp_path)
    return LocalSpark(tmp_path, request.getfixturevalue("spark"))
