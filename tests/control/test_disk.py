"""Lazy-disk and active-disk: what is moved, what is pushed, and never both at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from braidstream.control.controller import Controller, default_policies
from braidstream.control.overflow import Overflow
from braidstream.control.policies.disk import memory_policies
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.epoch.reorganizer import Reorganizer
from braidstream.model.figures import GroupFigures, SlotFigures
from braidstream.model.instructions import (
    CleanUp,
    Decision,
    IllegalInstruction,
    Instruction,
    Move,
    Spill,
    apply,
    slots_touched,
)
from braidstream.options import BudgetOptions
from tests.control.cluster import instructions_of, measured, placed


@dataclass(frozen=True)
class Case:
    """Groups at slots with (bytes, results an epoch), a budget of 100, and what one reorganization asks for."""

    says: str
    slots: list[dict[int, tuple[int, int]]]
    asked: list[Instruction]
    settings: dict[str, Any] = field(default_factory=dict)
    inactive: dict[int, int] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)


def _reports(case: Case) -> list[SlotFigures]:
    found = []
    for slot, groups in enumerate(case.slots):
        parts = tuple(
            GroupFigures(g, 10, matches, 10, size, 0.01, case.inactive.get(g, 0))
            for g, (size, matches) in groups.items()
        )
        held, matches = sum(p.stored_bytes for p in parts), sum(p.matches for p in parts)
        found.append(SlotFigures(slot, 7, 10 * len(parts), matches, held, 0.01 * len(parts), parts))
    return found


def decided(case: Case) -> tuple[list[Decision], dict[str, Any]]:
    settings = Settings(**{"memory_bytes": 100, "disk": "lazy", "epoch_s": 1.0, "splitting": False, **case.settings})
    directory = placed([list(slot) for slot in case.slots], 1 + max(g for slot in case.slots for g in slot))
    controller = Controller(settings, memory_policies(settings))
    reports = _reports(case)
    measures = measured(reports, directory)
    return controller.decide(reports, directory, len(case.slots), case.memory, 100.0, measures=measures)


ACTIVE = {"disk": "active", "query_bytes": 400, "memory_above": 0.0, "spill_share": 0.5}
CASES = [
    Case("what fits is neither moved nor pushed", [{0: (40, 5)}, {1: (40, 5)}], []),
    Case(
        "state is moved, not pushed, while another slot has room", [{0: (60, 9), 1: (60, 1)}, {2: (0, 1)}], [Move(0, 1)]
    ),
    Case(
        "what does not fit anywhere is pushed, the least productive first, in every slot",
        [{0: (60, 9), 1: (60, 1)}, {2: (60, 2), 3: (60, 8)}],
        [Spill(1), Spill(2)],
    ),
    Case(
        "a slot pushes although the time since the last move is too short for another",
        [{0: (60, 9), 1: (60, 1)}, {2: (10, 1)}],
        [Spill(1)],
        settings={"min_span_s": 45.0},
        memory=Memory(last_s=90.0),
    ),
    Case(
        "a group with inactive generations is not moved",
        [{0: (60, 9), 1: (40, 1)}, {2: (0, 1)}],
        [Move(1, 1)],
        inactive={0: 5},
    ),
    Case(
        "it is moved where the engine may",
        [{0: (40, 9), 1: (40, 1)}, {2: (0, 1)}],
        [Move(0, 1)],
        inactive={0: 5},
        settings={"move_spilled": True},
    ),
    Case(
        "a slot that has just pushed looks empty, but gets nothing from one that has less in all",
        [{0: (30, 9), 1: (60, 1)}, {2: (20, 1)}],
        [],
        inactive={2: 100},
    ),
    Case(
        "it gets something from one that has more in all",
        [{0: (45, 9), 1: (45, 1)}, {2: (0, 1)}],
        [Move(0, 1)],
        inactive={1: 100, 2: 100},
    ),
    Case("lazy-disk lets poor groups be while they fit", [{0: (90, 99)}, {1: (45, 1), 2: (45, 2)}], []),
    Case(
        "active-disk pushes the poor groups of a slot with few results",
        [{0: (90, 99)}, {1: (45, 1), 2: (45, 2)}],
        [Spill(1, forced=True)],
        settings=ACTIVE,
    ),
    Case(
        "the least productive groups of all poor slots go first",
        [{0: (90, 99)}, {1: (45, 4), 2: (45, 5)}, {3: (45, 3), 4: (45, 2)}],
        [Spill(4, forced=True), Spill(3, forced=True)],
        settings={**ACTIVE, "query_bytes": 900},
    ),
    Case(
        "no more is forced than the queries need beyond the cluster's memory",
        [{0: (90, 99)}, {1: (45, 1), 2: (45, 2)}],
        [],
        settings={**ACTIVE, "query_bytes": 240},
    ),
    Case(
        "what was forced before counts",
        [{0: (90, 99)}, {1: (45, 1), 2: (45, 2)}],
        [],
        settings=ACTIVE,
        memory=Memory(forced_bytes=170),
    ),
    Case(
        "without an estimate only what the cluster does not hold already may be forced",
        [{0: (90, 99)}, {1: (45, 1), 2: (45, 2)}],
        [Spill(1, forced=True)],
        settings={**ACTIVE, "query_bytes": None},
        inactive={2: 100},
    ),
    Case(
        "nothing is forced while every slot has plenty of memory",
        [{0: (45, 99)}, {1: (20, 1), 2: (25, 2)}],
        [],
        settings={**ACTIVE, "memory_above": 0.5},
    ),
    Case("rates that are close force nothing", [{0: (90, 15)}, {1: (45, 8), 2: (45, 9)}], [], settings=ACTIVE),
    Case(
        "memory is balanced before anything is forced",
        [{0: (40, 99), 3: (40, 99)}, {1: (30, 1)}],
        [],
        settings={**ACTIVE, "min_span_s": 45.0},
        memory=Memory(last_s=90.0),
    ),
]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.says) for case in CASES])
def test_what_is_asked_for(case: Case) -> None:
    decisions, _ = decided(case)
    assert instructions_of(decisions) == case.asked


def test_a_move_and_a_push_are_never_decided_together() -> None:
    case = Case("uneven and too full", [{0: (150, 9), 1: (60, 1)}, {2: (0, 1)}, {3: (120, 3)}], [])
    decisions, _ = decided(case)
    asked = instructions_of(decisions)
    assert {type(one) for one in asked} == {Move}
    assert any("one adaptation at a time" in one.refusal for one in decisions)


def test_pushes_do_not_delay_moves() -> None:
    case = Case("both overflow", [{0: (60, 9), 1: (60, 1)}, {2: (60, 2), 3: (60, 8)}], [])
    _, memory = decided(case)
    assert memory.last_s is None
    assert memory.forced_bytes == 0


def test_forced_pushes_are_summed_up() -> None:
    case = Case("active", [{0: (90, 99)}, {1: (45, 1), 2: (45, 2)}], [], settings=ACTIVE)
    assert decided(case)[1].forced_bytes == 45


def test_pushing_changes_no_directory() -> None:
    directory = placed([[0, 1], [2, 3]], 4)
    asked = (Spill(1), CleanUp(2))
    assert apply(directory, 2, asked) == (directory, 2)
    assert slots_touched(directory, asked) == {0, 1}
    with pytest.raises(IllegalInstruction):
        apply(directory, 2, [Spill(9)])


@pytest.mark.parametrize(
    ("disk", "names"),
    [
        ("none", ["MemoryBalance"]),
        ("lazy", ["MemoryBalance", "Spilling"]),
        ("active", ["MemoryBalance", "Spilling", "ForcedSpilling"]),
    ],
)
def test_the_settings_choose_the_policies(disk: Any, names: list[str]) -> None:
    chosen = default_policies(Settings(memory_bytes=100, disk=disk, splitting=False))
    assert [type(one).__name__ for one in chosen] == ["Suppliers", *names]


def test_what_is_pushed_is_said_once_for_the_flow_and_the_controller() -> None:
    flow = Overflow(1000, spill_share=0.7, idle_after=3, push_by="productive")
    told = Reorganizer.of(Controller(Settings(disk="lazy")), None, 1000, flow).controller.settings
    assert (told.memory_bytes, told.spill_share, told.idle_after, told.push_by) == (1000, 0.7, 3, "productive")
    own = Reorganizer.of(Controller(Settings(spill_share=0.2)), None, None, flow).controller.settings
    assert (own.memory_bytes, own.spill_share, own.idle_after) == (None, 0.2, 3)
    assert Settings().budget == BudgetOptions()
