"""Imports every module that registers a command, in the order in which the help lists them."""

# isort: off
from braidstream.cli import new, doctor, run, state, entry, demo, plan, tune, bench, paper, torture, overlay

__all__ = ["bench", "demo", "doctor", "entry", "new", "overlay", "paper", "plan", "run", "state", "torture", "tune"]
