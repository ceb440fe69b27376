"""Work that slots are given: slept, by rows and by matches."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest

from braidstream.model import slowness


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    importlib.reload(slowness)  # by then the environment is as it was


@pytest.mark.parametrize(
    ("work", "slept"),
    [("", []), ("50", [pytest.approx(0.005)]), ("50:2", [pytest.approx(0.007)]), (":2", [pytest.approx(0.002)])],
    ids=["no work", "for rows", "for rows and matches", "for matches"],
)
def test_a_slot_sleeps_for_what_it_was_given(work: str, slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(slowness.WORK_VARIABLE, work)
    monkeypatch.delenv(slowness.VARIABLE, raising=False)
    importlib.reload(slowness)
    found: list[float] = []
    monkeypatch.setattr(slowness.time, "sleep", found.append)
    slowness.slow_down("one", 0.001, n_rows=100, n_matches=1000)
    assert found == slept
