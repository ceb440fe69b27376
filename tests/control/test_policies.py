"""Tables of placement before and after, one for every policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from braidstream.control.controller import Controller
from braidstream.control.policies.balance import MemoryBalance
from braidstream.control.policies.declustering import Declustering
from braidstream.control.policies.merging import Merging
from braidstream.control.policies.splitting import Splitting
from braidstream.control.policies.suppliers import Suppliers
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.model.directory import Directory
from braidstream.model.figures import SlotFigures
from braidstream.model.instructions import apply
from tests.control.cluster import instructions_of, measured, placed, placement, report


@dataclass(frozen=True)
class Case:
    """Groups at slots with their seconds an epoch before, and where they are after one reorganization."""

    says: str
    before: list[dict[int, float]]
    after: list[list[int]]
    settings: dict[str, Any] = field(default_factory=dict)
    paces: list[float] | None = None
    sizes: dict[int, int] = field(default_factory=dict)
    matches: dict[int, int] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)


def outcome(case: Case, policy: type) -> list[list[int]]:
    """The placement after one decision of a controller with that policy alone."""
    settings = Settings(**case.settings)
    n_groups = 1 + max(g for slot in case.before for g in slot)
    directory = placed([list(slot) for slot in case.before], n_groups)
    reports = _reports(case)
    decisions, _ = Controller(settings, (policy(settings),)).decide(
        reports, directory, len(case.before), case.memory, 100.0, 7, measured(reports, directory)
    )
    return placement(*apply(directory, len(case.before), instructions_of(decisions)))


def _reports(case: Case) -> list[SlotFigures]:
    paces = case.paces or [1.0] * len(case.before)
    return [
        report(slot, groups, pace=paces[slot], sizes=case.sizes, matches=case.matches)
        for slot, groups in enumerate(case.before)
    ]


def table(*cases: Case) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.says) for case in cases])


@table(
    Case("an even load moves nothing", [{0: 1, 1: 1}, {2: 1, 3: 1}], [[0, 1], [2, 3]]),
    Case(
        "the group that best evens the two is yielded",
        [{0: 3, 1: 1.5, 2: 0.5}, {3: 1}],
        [[0, 2], [1, 3]],
    ),
    Case(
        "each supplier has a consumer of its own, the most loaded the least loaded",
        [{0: 2, 1: 2}, {2: 2, 3: 1}, {4: 0.5}, {5: 0.1}],
        [[1], [2], [3, 4], [0, 5]],
    ),
    Case(
        "with one consumer only the most loaded supplier yields",
        [{0: 2, 1: 2}, {2: 2, 3: 2.5}, {4: 0.1}],
        [[0, 1], [3], [2, 4]],
    ),
    Case("a single heavy group is not handed around", [{0: 4}, {1: 0.5}, {2: 0.5}], [[0], [1], [2]]),
    Case(
        "a move that would overload the consumer instead is not suggested",
        [{0: 4, 1: 0.1}, {2: 0.5}],
        [[0], [1, 2]],
    ),
    Case(
        "a slot twice as slow yields although it has as much work",
        [{0: 1, 1: 1, 2: 1}, {3: 1, 4: 1, 5: 1}],
        [[1, 2], [0, 3, 4, 5]],
        paces=[2.0, 1.0],
    ),
    Case(
        "several groups go at once when that is allowed, and no more than even the two",
        [{0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1}, {6: 1}],
        [[2, 3, 4, 5], [0, 1, 6]],
        settings={"groups_at_once": 5},
    ),
    Case(
        "in an epoch with time to spare nobody is a supplier",
        [{0: 2, 1: 2}, {2: 0.1}],
        [[0, 1], [2]],
        settings={"epoch_s": 10.0},
    ),
    Case(
        "when all are beyond the epoch's length there is no consumer",
        [{0: 9, 1: 9}, {2: 6, 3: 6}],
        [[0, 1], [2, 3]],
        settings={"epoch_s": 5.0},
    ),
    Case("a cluster without work is left alone", [{0: 0, 1: 0}, {2: 0}], [[0, 1], [2]]),
    Case(
        "a random group is yielded when asked for, and only if that evens",
        [{0: 1, 1: 1, 2: 1}, {3: 0.5}],
        [[0, 1], [2, 3]],
        settings={"choice": "random"},
    ),
)
def test_suppliers_and_consumers(case: Case) -> None:
    assert outcome(case, Suppliers) == case.after


@table(
    Case(
        "memory below the pressure threshold is not balanced",
        [{0: 1, 1: 1}, {2: 1}],
        [[0, 1], [2]],
        settings={"memory_bytes": 1000},
        sizes={0: 100, 1: 200, 2: 10},
    ),
    Case(
        "half of the difference moves, the most productive group first",
        [{0: 1, 1: 1, 2: 1, 3: 1}, {4: 1}],
        [[0, 2, 3], [1, 4]],
        settings={"memory_bytes": 500, "epoch_s": 10.0},
        sizes={0: 100, 1: 100, 2: 100, 3: 100, 4: 100},
        matches={0: 10, 1: 40, 2: 20, 3: 5},
    ),
    Case(
        "a productive group larger than the amount is passed over",
        [{0: 1, 1: 1, 2: 1}, {3: 1}],
        [[0], [1, 2, 3]],
        settings={"memory_bytes": 500, "epoch_s": 10.0},
        sizes={0: 300, 1: 50, 2: 60, 3: 100},
        matches={0: 9000, 1: 1, 2: 1},
    ),
    Case(
        "a ratio of 0.85 is even enough",
        [{0: 1, 1: 1}, {2: 1}],
        [[0, 1], [2]],
        settings={"memory_bytes": 100, "epoch_s": 10.0},
        sizes={0: 50, 1: 50, 2: 85},
    ),
    Case(
        "state goes from the fullest to the emptiest of many slots",
        [{0: 1, 1: 1}, {2: 1}, {3: 1}],
        [[1], [2], [0, 3]],
        settings={"memory_bytes": 500, "epoch_s": 10.0},
        sizes={0: 100, 1: 300, 2: 200, 3: 100},
        matches={0: 1, 1: 1, 2: 1, 3: 1},
    ),
    Case(
        "a slot that had to yield load at this pace is given no state",
        [{0: 1, 1: 1}, {2: 1}, {3: 1}],
        [[1], [0, 2], [3]],
        settings={"memory_bytes": 500, "epoch_s": 10.0},
        sizes={0: 100, 1: 300, 2: 150, 3: 100},
        matches={0: 1, 1: 1, 2: 1, 3: 1},
        memory=Memory(yielded={2: 0.001}),
    ),
    Case(
        "state is not moved to where its work would not fit",
        [{0: 1, 1: 1}, {2: 2}],
        [[0, 1], [2]],
        settings={"memory_bytes": 500, "epoch_s": 2.0},
        sizes={0: 200, 1: 200, 2: 100},
        matches={0: 1, 1: 1, 2: 1},
    ),
)
def test_memory_balance(case: Case) -> None:
    assert outcome(case, MemoryBalance) == case.after


@table(
    Case("a group of half the load is split, its upper half goes to the consumer", [{0: 4}, {1: 0.5}], [[0], [1, 2]]),
    Case("a supplier of small groups is not split", [{0: 0.9, 1: 0.9, 2: 0.9, 3: 0.9}, {4: 0.1}], [[0, 1, 2, 3], [4]]),
    Case(
        "a group that one key carries is left alone",
        [{0: 4}, {1: 0.5}],
        [[0], [1]],
        memory=Memory(solid={0: 4.0}),
    ),
    Case(
        "a group that one key carried is split once its load has halved",
        [{0: 4}, {1: 0.5}],
        [[0], [1, 2]],
        memory=Memory(solid={0: 9.0}),
    ),
    Case(
        "without a consumer the halves stay together until there is one",
        [{0: 9}, {1: 9}],
        [[0, 2], [1, 3]],
        settings={"epoch_s": 1.0},
    ),
    Case(
        "a group at the greatest depth is not split",
        [{0: 4}, {1: 0.5}],
        [[0], [1]],
        settings={"max_depth": 1},
    ),
)
def test_splitting(case: Case) -> None:
    assert outcome(case, Splitting) == case.after


@table(
    Case(
        "small buddies of one slot become one group, down to the number at the start",
        [{0: 0.1, 1: 0.1, 2: 0.01, 3: 0.01}, {4: 0.01, 5: 0.01, 6: 0.1, 7: 0.1}],
        [[0, 1, 2], [4, 6, 7]],
        memory=Memory(base_groups=4),
        settings={"epoch_s": 0.5},
    ),
    Case(
        "no more groups are merged than were split",
        [{0: 0.01, 1: 0.01}, {2: 0.01, 3: 0.01}],
        [[0], [2, 3]],
        memory=Memory(base_groups=3),
        settings={"epoch_s": 1.0},
    ),
    Case(
        "buddies on two slots meet where more of their state is",
        [{0: 0.01, 2: 0.3}, {1: 0.01, 3: 0.3}],
        [[2], [0, 3]],
        memory=Memory(base_groups=2),
        settings={"epoch_s": 1.0},
        sizes={0: 10, 1: 20},
    ),
    Case(
        "nothing is merged while somebody is a supplier",
        [{0: 2, 1: 2}, {2: 0.01, 3: 0.01}],
        [[0, 1], [2, 3]],
        memory=Memory(base_groups=2),
        settings={"epoch_s": 1.0},
    ),
)
def test_merging(case: Case) -> None:
    assert outcome(case, Merging) == case.after


@table(
    Case(
        "more suppliers than beta times the consumers: one slot more",
        [{0: 3}, {1: 3}],
        [[0], [1], []],
        settings={"declustering": True, "epoch_s": 1.0, "patience": 1},
    ),
    Case(
        "one supplier among three consumers is for the others to help",
        [{0: 3}, {1: 0.9}, {2: 0.9}, {3: 0.9}],
        [[0], [1], [2], [3]],
        settings={"declustering": True, "epoch_s": 1.0, "patience": 1},
    ),
    Case(
        "never beyond the maximum",
        [{0: 3}, {1: 3}],
        [[0], [1]],
        settings={"declustering": True, "epoch_s": 1.0, "patience": 1, "max_slots": 2},
    ),
    Case(
        "no supplier and a light load: the last slot's groups go to the least loaded, and it goes",
        [{0: 0.2}, {1: 0.1}, {2: 0.2, 3: 0.05}],
        [[0, 3], [1, 2]],
        settings={"declustering": True, "epoch_s": 1.0, "patience": 1},
    ),
    Case(
        "no supplier, but the others could not take it: all stay",
        [{0: 0.9}, {1: 0.9}],
        [[0], [1]],
        settings={"declustering": True, "epoch_s": 1.0, "patience": 1},
    ),
    Case(
        "light on average, but a large group would not fit beside the others: all stay",
        [{0: 0.1}, {1: 0.1}, {2: 1.2}],
        [[0], [1], [2]],
        settings={"declustering": True, "epoch_s": 1.0, "patience": 1},
    ),
    Case(
        "a number of slots that proved too few for this load is not tried again",
        [{0: 0.2}, {1: 0.1}],
        [[0], [1]],
        settings={"declustering": True, "epoch_s": 1.0, "patience": 1},
        memory=Memory(too_few={1: 320.0}),
    ),
    Case(
        "a number of slots that proved too few is tried once the load has fallen by a fifth",
        [{0: 0.2}, {1: 0.1}],
        [[0, 1]],
        settings={"declustering": True, "epoch_s": 1.0, "patience": 1},
        memory=Memory(too_few={1: 400.0}),
    ),
    Case(
        "the paper's rule gives a slot up whenever nobody is a supplier",
        [{0: 0.9}, {1: 0.9}],
        [[0, 1]],
        settings={"declustering": True, "epoch_s": 1.0, "patience": 1, "shrink_below": 1e9},
    ),
    Case(
        "never below the minimum",
        [{0: 0.1}, {1: 0.1}],
        [[0], [1]],
        settings={"declustering": True, "epoch_s": 1.0, "patience": 1, "min_slots": 2},
    ),
    Case(
        "one reorganization is not enough when patience asks for two",
        [{0: 3}, {1: 3}],
        [[0], [1]],
        settings={"declustering": True, "epoch_s": 1.0, "patience": 2},
    ),
    Case(
        "without an epoch's length load is only relative, and the number of slots stays",
        [{0: 3}, {1: 1}],
        [[0], [1]],
        settings={"declustering": True, "patience": 1},
    ),
)
def test_declustering(case: Case) -> None:
    settings = Settings(**case.settings)
    n_groups = 1 + max(g for slot in case.before for g in slot)
    directory = placed([list(slot) for slot in case.before], n_groups)
    decisions, _ = Controller(settings, (Declustering(settings),)).decide(
        _reports(case), directory, len(case.before), case.memory, clock_s=0.0
    )
    after, n_slots = apply(directory, len(case.before), instructions_of(decisions))
    assert placement(after, n_slots) == case.after


def test_random_choice_follows_the_seed() -> None:
    settings = Settings(choice="random")
    directory = placed([list(range(16)), [16]], 17)
    reports = [report(0, dict.fromkeys(range(16), 1.0)), report(1, {16: 0.1})]

    def chosen(seed: int) -> object:
        return instructions_of(Controller(settings).decide(reports, directory, 2, Memory(), 0.0, seed)[0])

    assert [chosen(seed) for seed in range(8)] == [chosen(seed) for seed in range(8)]
    assert len({str(chosen(seed)) for seed in range(8)}) > 1


def test_directory_of_tables_is_what_it_says() -> None:
    assert placement(placed([[1], [0, 2]], 3), 2) == [[1], [0, 2]]
    assert isinstance(placed([[0]], 1), Directory)
