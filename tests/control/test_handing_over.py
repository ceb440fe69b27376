"""DHTJoin's rules on the engine without Spark: partners by delta, and a probing sequence for each slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from braidstream.control.controller import Controller
from braidstream.control.load import GroupLoad, SlotLoad, View
from braidstream.control.policies.handing_over import Partners
from braidstream.control.probing import learned, learned_apart, probing_order
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.epoch import fold
from braidstream.errors import InputError
from braidstream.kernels.hashing import hash_columns
from braidstream.lab.testing.harness import Harness, Indexed
from braidstream.model.directory import Directory
from braidstream.model.group_measures import GroupMeasures
from braidstream.model.instructions import Split
from braidstream.model.numbers import EpochNumber, SlotId
from tests.backends import multiset

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
SECOND = 1_000_000


def harness_of(folder: Path, names: str, controller: Controller | None = None, groups: int = 2) -> Harness:
    inputs = {"q": [Indexed(name, name, ("k",), 60 * SECOND) for name in names]}
    schemas = dict.fromkeys(names, SCHEMA)
    return Harness(folder, schemas, inputs, slots=2, groups=groups, controller=controller)


def table(keys: Any, second: int) -> pa.Table:
    return pa.table([keys, np.arange(len(keys)), np.full(len(keys), second * SECOND)], schema=SCHEMA)


@pytest.mark.parametrize(("delta", "n_groups"), [(None, 1), (0.5, 2)])
def test_a_slot_above_delta_of_its_memory_halves_a_group_with_a_partner(
    tmp_path: Path, delta: float | None, n_groups: int
) -> None:
    """All state is in one group, at one of two slots; it is too large to be moved as a whole."""
    known = Settings(every=1, epoch_s=1000.0, memory_bytes=100_000, delta=delta)
    harness, plain = (harness_of(tmp_path / name, "RS", c, 1) for name, c in (("a", Controller(known)), ("b", None)))
    rng = np.random.default_rng(1)
    for second in range(4):
        tables = {name: table(rng.integers(0, 500, 400), second) for name in "RS"}
        harness.epoch(tables)
        plain.epoch(tables)
    groups = harness.manifest.directory.groups
    assert (len(groups), len({group.slot for group in groups})) == (n_groups, n_groups)
    assert multiset(harness.results("q")) == multiset(plain.results("q"))
    rules = {one.rule for one in harness.runner.flow.decider.decisions if one.instructions}
    assert rules == ({"partners"} if delta else set())


def test_old_state_of_one_key_is_split_once_and_then_left_alone(tmp_path: Path) -> None:
    """No rows of it come any more; a partner has room for half of the group, which is no half."""
    known = Settings(every=1, epoch_s=1000.0, memory_bytes=100_000, delta=0.5)
    harness = harness_of(tmp_path, "RS", Controller(known), 1)
    harness.epoch({name: table(np.full(1000, 7), 0) for name in "RS"})
    for second in range(1, 12):
        harness.epoch({name: table(np.array([], dtype=np.int64), second) for name in "RS"})
    splits = [d for d in harness.runner.flow.decider.decisions if d.rule == "partners" and d.instructions]
    assert len(splits) <= 2


def test_a_smaller_group_is_halved_where_half_of_the_largest_does_not_fit() -> None:
    """Slot 1 has room for 200 bytes more: half of 300, not half of 900."""
    directory, sizes, slots = Directory.of(3, 1), (900, 300, 300), (0, 0, 1)
    directory = directory.move(directory.groups[2].id, SlotId(1))
    loads = {
        group.id: GroupLoad(group.id, SlotId(slot), 0.0, 0.0, 0.0, size)
        for group, slot, size in zip(directory.groups, slots, sizes, strict=True)
    }
    held = tuple(SlotLoad(SlotId(slot), 0.0, 0.0, 0.0, 0.0, 0.0, size) for slot, size in enumerate((1200, 300)))
    view = View(EpochNumber(3), 0.0, directory, held, loads, 1.0, 1.0, False, GroupMeasures())
    known = Settings(memory_bytes=1000, delta=0.5)
    (one,) = Partners(known).suggest(view, Memory(), np.random.default_rng(0))
    assert one.instructions == (Split(directory.groups[1].id, SlotId(1)),)


def test_delta_and_theta_do_not_go_together() -> None:
    with pytest.raises(InputError, match="delta"):
        Settings(delta=0.5, theta="1 MB")


def test_every_slot_probes_in_the_order_of_its_own_matches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of slot 0 have many partners in B and one in C, those of slot 1 the other way round."""
    asked: list[dict[int, int]] = []

    def measured(
        known: Any, common: Any, by_slot: Mapping[int, Mapping[str, Mapping[int, tuple[int, int]]]], n_slots: int
    ) -> Any:
        asked.append({slot: sum(m for _, m in joins["q"].values()) for slot, joins in by_slot.items() if joins})
        return learned_apart(known, common, by_slot, n_slots) if is_apart else {}

    monkeypatch.setattr(fold, "learned_apart", measured)
    keys = pa.array(range(64), pa.int64())
    upper = hash_columns([keys])[0] >= np.uint64(1 << 63)
    found: dict[bool, Any] = {}
    for is_apart in (True, False):
        harness = harness_of(tmp_path / str(is_apart), "ABC")
        asked.clear()
        for second in range(5):
            many, one = np.repeat(np.flatnonzero(~upper), 6), np.flatnonzero(upper)
            streams = {
                "A": np.arange(64),
                "B": np.append(many, one),
                "C": np.append(np.flatnonzero(~upper), np.repeat(one, 6)),
            }
            harness.epoch({name: table(own, second) for name, own in streams.items()})
        found[is_apart] = asked[-1], multiset(harness.results("q")), harness.manifest.notes
    notes = found[True][2]
    orders = {slot: probing_order(3, own)[0] for slot, own in notes.slot_fanouts["q"].items()}
    common = probing_order(3, notes.fanouts["q"])[0]
    assert {slot: orders.get(slot, common) for slot in (0, 1)} == {0: [2, 1], 1: [1, 2]}
    assert found[True][1] == found[False][1]
    assert sum(found[True][0].values()) < sum(found[False][0].values())  # fewer partial composites


def test_of_a_slot_only_what_differs_is_remembered() -> None:
    slots: Sequence[Mapping[int, tuple[int, int]]] = [{1: (100, 500), 2: (100, 100)}, {1: (100, 100), 2: (100, 200)}]
    common = learned({}, [{"q": own} for own in slots])
    apart = learned_apart({}, common, {slot: {"q": own} for slot, own in enumerate(slots)}, len(slots))
    assert common["q"] == {1: 3.0, 2: 1.5}
    assert {join: set(known) for join, known in apart.items()} == {"q": {1}}
    assert learned_apart(apart, common, {}, len(slots)) == apart
    assert learned_apart(apart, common, {}, 0) == {}
    assert learned_apart(apart, {}, {}, len(slots)) == {}
    pairs = {slot: {"two": {1: (100, slot)}} for slot in (0, 1)}
    assert learned_apart({}, {"two": {1: 0.5}}, pairs, len(pairs)) == {}
