"""The papers' figures in one report: an HTML page that needs no other file, and the pictures beside it as PNG.

Made from kept results alone; nothing is run. An experiment without a result is listed as not run. Cost: half a second
a figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from braidstream.lab.papers.page import Results, page
from braidstream.lab.papers.plot import draw
from braidstream.lab.papers.registry import Declaration

__all__ = ["write"]


def write(declared: Sequence[Declaration], results: Results, output: Path) -> list[Path]:
    """Write the page to `output`, and a PNG for each figure that has data into its folder; gives the pictures."""
    known = {(one.paper, one.figure) for one in declared}
    listed = [*declared, *(one.declared for key, one in results.items() if key not in known)]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(page(listed, results), encoding="utf-8")
    pictures = []
    for (paper, figure), result in results.items():
        if result.outcome.series:
            pictures.append(output.parent / f"{paper}-{figure}.png")
            draw(result.declared, result.outcome, pictures[-1])
    return pictures
