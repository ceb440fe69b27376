"""The metrics have names that stay, are documented, and are what Grafana's dashboard asks for."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")  # the extra `metrics`

from prometheus_client import generate_latest

from braidstream.watch.flow_metrics import FlowMetrics, Measured, names

DOCS = Path(__file__).parents[2] / "docs"


def test_every_metric_is_documented_and_no_other() -> None:
    named = set(re.findall(r"`(braidstream_\w+)`", (DOCS / "dashboard.md").read_text()))
    assert named == set(names())


def test_grafanas_dashboard_asks_for_metrics_that_exist() -> None:
    text = (DOCS / "grafana.json").read_text()
    asked = set(re.findall(r"braidstream_\w+?(?=[\[{ )])", " ".join(_expressions(json.loads(text)))))
    known = set(names()) | {f"{name}_bucket" for name in names()}
    assert asked
    assert asked <= known


def _expressions(board: dict) -> list[str]:
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]


def test_an_epoch_counts() -> None:
    metrics = FlowMetrics()
    entry = Measured(True, {"join": 0.2, "total": 0.5}, {"R": 5}, {"R": 1}, {"q": 7}, {"epoch": 3, "slots": 4})
    metrics.running("f", is_running=True)
    metrics.epoch("f", entry)
    metrics.epoch("f", entry)
    metrics.decided("f", "grids", is_refused=False)
    value = metrics.registry.get_sample_value
    assert value("braidstream_rows_total", {"flow": "f", "stream": "R"}) == 10
    assert value("braidstream_late_rows_total", {"flow": "f", "stream": "R"}) == 2
    assert value("braidstream_matches_total", {"flow": "f", "query": "q"}) == 14
    assert value("braidstream_epoch_seconds_count", {"flow": "f"}) == 2
    assert value("braidstream_phase_seconds", {"flow": "f", "phase": "join"}) == 0.2
    assert value("braidstream_slots", {"flow": "f"}) == 4
    assert value("braidstream_decisions_total", {"flow": "f", "rule": "grids", "outcome": "done"}) == 1
    assert b"braidstream_running" in generate_latest(metrics.registry)
