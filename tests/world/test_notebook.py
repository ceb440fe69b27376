"""The tutorial notebook runs from its first cell to its last, and shows what it says."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.world

NOTEBOOK = Path(__file__).parents[2] / "examples" / "hot_key.ipynb"


def test_the_notebook_shows_a_hot_key_being_split(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", ())]
    printed = "".join(one["text"] for one in outputs if one["output_type"] == "stream" and one["name"] == "stdout")
    shown = "".join(one["data"].get("text/html", "") for one in outputs if "data" in one)
    assert "a grid of" in printed
    assert "<th colspan=2 style='text-align: left'>flow ads</th>" in shown
    assert "ads: not running" in shown
    assert '<iframe src="http://127.0.0.1:' in shown


def test_the_notebook_is_kept_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in notebook.cells)
