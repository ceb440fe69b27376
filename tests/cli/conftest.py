from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.workshop import Workshop


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """A folder with two streams of three files each."""
    return Workshop.make(tmp_path)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Workshop:
    """A flow that has run three epochs; not to be changed."""
    from braidstream import jobs

    made = Workshop.make(tmp_path_factory.mktemp("finished"))
    jobs.start(jobs.read(made.job()), spark).await_termination()
    return made


@pytest.fixture
def copied(tmp_path: Path, finished: Workshop) -> Workshop:
    """A copy of the finished flow, to be looked at; Spark's own log in it still names the files of the original."""
    shutil.copytree(finished.folder, tmp_path / "copy")
    return Workshop(tmp_path / "copy")
