"""Policies suggest, the controller decides.

A policy is one file with one frozen dataclass: its parameters are fields, and `suggest` is a pure function of the view,
the memory and the random source. It may assume nothing about whether its suggestions are taken.
`controller.default_policies` names the order in which the controller asks; a further policy (shedding, grids) is a
further file.

Suggestions have a `kind`, what the adaptation is for. One kind of adaptation runs at a time (D-CAPE 6); within one
kind, suggestions that touch different slots go together, as WSJ's supplier-consumer pairs do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from braidstream.control.load import View
from braidstream.control.remembered import Memory
from braidstream.model.instructions import Instruction

__all__ = ["Kind", "Policy", "Suggestion"]

Kind = Literal["grow", "shrink", "load", "memory", "spill", "tidy"]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Instructions that belong together, the rule they come from, and the figures the rule saw."""

    rule: str
    kind: Kind
    instructions: tuple[Instruction, ...]
    figures: Mapping[str, float]
    reason: str


class Policy(Protocol):
    """What the controller asks of a policy."""

    def suggest(self, view: View, memory: Memory, rng: np.random.Generator) -> list[Suggestion]:
        """What this policy would change, best first."""
        ...
