"""Experiments that run at once, for the tests of what surrounds experiments."""

from __future__ import annotations

import math

from braidstream.lab.papers.registry import Experiment, Outcome, Run, Series, judged, near

__all__ = ["FAILS", "HOLDS", "HOLDS_NOT", "LINES", "PARTS", "TABLE", "invented"]


def invented(figure: str, outcome: Outcome | Exception, **more: object) -> Experiment:
    """An experiment with this outcome."""

    def function(run: Run) -> Outcome:
        run.progress(0.5, "half")
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    declared: dict[str, object] = {
        "paper": "wsj",
        "figure": figure,
        "title": f"invented {figure}",
        "claim": "a & b < c",
        "how": "exact",
        "x_label": "tuples/s",
        "y_label": "delay (s)",
        "parameters": {"b": 0.7, "sizes": [1, 2]},
        "check": "delays rise",
        "function": function,
    }
    return Experiment(**{**declared, **more})  # type: ignore[arg-type]


LINES = [Series("ours", [1, 2, 3], [0.5, math.nan, 20.0]), Series("bound", [1, 3], [1.0, 30.0], is_model=True)]
PANELS = [
    Series(s, [256, 512], [1.0, 2.0 + i], panel) for i, panel in enumerate(("(a) fast", "(b) slow")) for s in "pq"
]
ROWS = [Series(name, ["Part", "Comb"], [1.5, 2500.0]) for name in ("Proc", "Comm")]

HOLDS = invented(
    "fig5",
    judged(
        LINES, [near("delay <s>", 1.6, 2.0, 0.25, "a & b")], ["seen <once>"], {"delay (s)": 1.6}, ["quick: smaller"]
    ),
    stated={"delay (s)": 2.0, "rate": 4000.0},
    log_y=True,
    differs="fitted on one point",
)
HOLDS_NOT = invented("fig6", Outcome(False, LINES[:1]))
FAILS = invented("fig7", RuntimeError("no [memory] left"))
PARTS = invented("fig8", Outcome(True, PANELS), log_x=True)
TABLE = invented("table1", Outcome(True, ROWS), form="table")
