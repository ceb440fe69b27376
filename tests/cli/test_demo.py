"""`braid demo` verifies its own answer, and says so only when it is right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from braidstream.lab.showcase import Demo
from braidstream.lab.testing.batch import Difference
from tests.cli.workshop import Braid

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_the_demo_ends_with_its_verified_line_and_leaves_a_picture(
    braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = braid("demo", "--minutes", 2)
    assert outcome.code == 0, outcome
    lines = outcome.out.splitlines()
    assert re.fullmatch(r"verified: [1-9]\d* matches, identical to the batch join", lines[-1])
    assert outcome.out.count("verified:") == 1
    assert "picture: build/demo.png" in lines
    assert (tmp_path / "build/demo.png").read_bytes().startswith(b"\x89PNG")
    assert braid("state", "build/demo/checkpoint").code == 0


def test_a_wrong_answer_is_not_verified(braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verify = Demo.verify

    def lose_a_file_first(demo: Demo) -> Difference:
        next((demo.folder / "pairs").glob("*.parquet")).unlink()
        return verify(demo)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Demo, "verify", lose_a_file_first)
    outcome = braid("demo", "--minutes", 1)
    assert outcome.code == 1
    assert "NOT verified" in outcome.out
    assert "identical to the batch join" not in outcome.out


def test_the_demo_replaces_only_a_folder_that_it_made(braid: Braid, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    outcome = braid("demo", "--folder", tmp_path)
    assert outcome.code == 2
    assert "is not empty" in outcome.err
    assert (tmp_path / "mine.txt").read_text() == "precious"
