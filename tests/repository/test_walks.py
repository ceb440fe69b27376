"""The walks of docs/architecture.md: every file and name in them exists, and a row's is short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STEP = re.compile(r"^\| `([\w/]+\.py): (\w+)` \|", re.MULTILINE)
MOST_FILES_OF_A_ROW = 22


def walks() -> dict[str, list[tuple[str, str]]]:
    text = (ROOT / "docs/architecture.md").read_text()
    section = text.split("## Four walks")[1].split("\n## ")[0]
    return {part.splitlines()[0]: STEP.findall(part) for part in section.split("\n### ")[1:]}


@pytest.mark.parametrize("walk", ["A row", "A decision", "A submitted query", "A heavy key"])
def test_a_walk_names_what_exists_and_passes_no_file_twice(walk: str) -> None:
    steps = walks()[walk]
    assert len(steps) > 10
    assert len({file for file, _ in steps}) == len(steps)
    for file, name in steps:
        text = (ROOT / "src/braidstream" / file).read_text()
        assert re.search(rf"^(class|def) {name}\b", text, re.MULTILINE), f"{file} has no {name}"


def test_a_row_passes_few_files() -> None:
    assert len(walks()["A row"]) <= MOST_FILES_OF_A_ROW
