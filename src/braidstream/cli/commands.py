"""Imports every module that registers a command, in the order in which the help lists them."""

# isort: off
from braidstream.cli import run, state, verify, rollback, entry, demo, plan, tune, bench, paper, overlay

__all__ = ["bench", "demo", "entry", "overlay", "paper", "plan", "rollback", "run", "state", "tune", "verify"]
