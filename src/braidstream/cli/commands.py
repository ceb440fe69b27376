"""Imports every module that registers a command, in the order in which the help lists them."""

# isort: off
from braidstream.cli import new, doctor, run, watch, state, verify, rollback, entry, demo, plan, tune, bench, paper
from braidstream.cli import torture, overlay

__all__ = [
    "bench", "demo", "doctor", "entry", "new", "overlay", "paper", "plan", "rollback", "run", "state", "torture",
    "tune", "verify", "watch",
]  # fmt: skip
