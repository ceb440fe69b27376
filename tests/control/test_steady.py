"""A load that stays the same on average moves nothing, however noisy it is; one that is uneven is still evened."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.control.controller import Controller
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.model.directory import Directory, enough_groups
from braidstream.model.figures import FigureColumns
from braidstream.model.instructions import Decision, Move, apply
from tests.control.cluster import instructions_of
from tests.scale import examples

EPOCHS = 500
EVERY = Settings().every
ROW_BYTES = 100


@dataclass
class RandomLoad:
    """Rows that are dealt to groups by chance, and slots that take their time with them.

    A hot hash has `hot` times the rows of all others together, and stays in one group however that is split. `noise`
    is the deviation of the logarithm of a slot's time in an epoch; `hiccups` the share of epochs in which a slot is
    held up for several times as long. State is what came in a window of `window` epochs.
    """

    n_slots: int
    n_groups: int
    rows: int
    busy_s: float
    noise: float
    hiccups: float
    rng: np.random.Generator
    paces: np.ndarray
    hot: float = 0.0
    window: int = 0
    directory: Directory = field(init=False)
    memory: Memory = field(default_factory=Memory)
    epoch: int = 0

    def __post_init__(self) -> None:
        self.directory = Directory.of(self.n_groups, self.n_slots)

    def reorganize(self, controller: Controller) -> list[Decision]:
        known = self.directory.columns()
        slots, n = np.asarray(known.slots, dtype=np.int64), len(known)
        rows = self.rng.poisson(self.rows * self.shares(), (EVERY, n))
        by_slot = np.zeros((EVERY, self.n_slots), dtype=np.int64)
        np.add.at(by_slot.T, slots, rows.T)
        seconds = by_slot * (self.busy_s * self.n_slots / self.rows) * self.paces
        seconds *= self.rng.lognormal(0.0, self.noise, seconds.shape)
        seconds *= 1 + (self.rng.random(seconds.shape) < self.hiccups) * self.rng.exponential(5.0, seconds.shape)
        decisions, self.memory = controller.decide(
            self._columns(known, slots, rows, by_slot, seconds), self.directory, self.n_slots, self.memory, self.epoch
        )
        self.directory, self.n_slots = apply(self.directory, self.n_slots, instructions_of(decisions))
        self.epoch += EVERY
        return decisions

    def shares(self) -> np.ndarray:
        """Of all rows, those of each group."""
        even = 0.5 ** np.asarray(self.directory.columns().depths, dtype=float)
        even[len(even) // 3] += self.hot
        return even / even.sum()

    def of_slots(self) -> np.ndarray:
        """Of all rows, those of each slot."""
        return np.bincount(self.directory.columns().slots, self.shares(), self.n_slots)

    def _columns(self, known, slots, rows, by_slot, seconds) -> FigureColumns:  # type: ignore[no-untyped-def]
        flat, n = self.n_slots * EVERY, len(known)
        whole, unknown = np.zeros(flat, dtype=np.int64), np.full(flat, np.nan)
        nothing = np.zeros(n, dtype=np.int64)
        held = self.rng.poisson(self.rows * self.shares() * self.window) * ROW_BYTES
        shares = rows.sum(axis=0) / np.maximum(by_slot.sum(axis=0), 1)[slots]
        return FigureColumns(
            np.tile(np.arange(self.n_slots), EVERY),
            np.repeat(np.arange(self.epoch, self.epoch + EVERY), self.n_slots),
            by_slot.ravel(),
            whole,
            np.tile(np.bincount(slots, held, self.n_slots).astype(np.int64), EVERY),
            seconds.ravel(),
            unknown,
            unknown,
            unknown,
            [""] * flat,
            np.asarray(known.ids, dtype=np.int64),
            slots,
            rows.sum(axis=0),
            nothing,
            seconds.sum(axis=0)[slots] * shares,
            held,
            nothing,
        )


@given(
    n_slots=st.integers(2, 64),
    rows=st.sampled_from([100, 5_000, 1_000_000]),
    busy_s=st.sampled_from([0.004, 0.2, 5.0]),
    noise=st.floats(0, 0.3),
    hiccups=st.sampled_from([0.0, 0.01]),
    epoch_s=st.sampled_from([None, 0.2, 5.0]),
    fill=st.sampled_from([None, 0.3, 0.6, 0.8]),
    seed=st.integers(0, 1 << 32),
)
@settings(max_examples=examples(60), deadline=None)
def test_a_steady_load_moves_nothing_in_500_epochs(
    n_slots: int,
    rows: int,
    busy_s: float,
    noise: float,
    hiccups: float,
    epoch_s: float | None,
    fill: float | None,
    seed: int,
) -> None:
    """Slots hold `fill` of their budget, or have none; 20,000 rows each and more.

    Of 2,000 rows, 200 kB, chance alone can make a tenth of a difference, and with the eighth by which groups are uneven
    that exceeds theta_d, which has no margin for noise: a budget so small may see a move.
    """
    rng, window = np.random.default_rng(seed), max(50, 20_000 * n_slots // rows)
    groups, paces = enough_groups(n_slots), np.ones(n_slots)
    load = RandomLoad(n_slots, groups, rows, busy_s, noise, hiccups, rng, paces, window=window)
    budget = None if fill is None else int(rows * window * ROW_BYTES / n_slots / fill)
    controller = Controller(Settings(epoch_s=epoch_s, memory_bytes=budget, disk="lazy"))
    for _ in range(EPOCHS // EVERY):
        assert [d.explain() for d in load.reorganize(controller) if d.is_accepted] == []


@given(
    n_slots=st.integers(2, 64),
    share=st.floats(1.5, 8.0),
    noise=st.floats(0, 0.1),
    epoch_s=st.sampled_from([None, 1.0]),
    seed=st.integers(0, 1 << 32),
)
@settings(max_examples=examples(40), deadline=None)
def test_a_group_with_more_than_a_slots_share_is_freed_of_its_neighbours(
    n_slots: int, share: float, noise: float, epoch_s: float | None, seed: int
) -> None:
    """One hash has `share` times a slot's even share of all rows: others leave its slot, in every reorganization."""
    share = min(share, 0.75 * n_slots)
    hot = share / (n_slots - share)
    rng = np.random.default_rng(seed)
    load = RandomLoad(n_slots, enough_groups(n_slots), 1_000_000, 1.0, noise, 0.0, rng, np.ones(n_slots), hot)
    slot, before = int(load.of_slots().argmax()), load.of_slots().max()
    controller, decisions = Controller(Settings(epoch_s=epoch_s, groups_at_once=4)), []
    for _ in range(3):
        decisions += load.reorganize(controller)
    assert instructions_of(decisions), "three reorganizations saw nothing"
    assert load.of_slots()[slot] < before


@given(n_slots=st.integers(2, 64), fill=st.sampled_from([0.3, 0.9]), seed=st.integers(0, 1 << 32))
@settings(max_examples=examples(15), deadline=None)
def test_uneven_state_is_evened_once_it_presses_on_the_budget(n_slots: int, fill: float, seed: int) -> None:
    """One slot has the groups of a neighbour too; all slots are idle otherwise."""
    rng = np.random.default_rng(seed)
    load = RandomLoad(n_slots, enough_groups(n_slots), 1_000_000, 0.004, 0.0, 0.0, rng, np.ones(n_slots), window=50)
    moved = [Move(group.id, 0) for group in load.directory.of_slot(1)[1:]]
    load.directory, _ = apply(load.directory, n_slots, moved)
    most = load.of_slots().max()
    budget = int(most * load.rows * load.window * ROW_BYTES / fill)
    for _ in range(3):
        load.reorganize(Controller(Settings(memory_bytes=budget, disk="lazy")))
    assert (load.of_slots().max() < most) == (fill > Settings().memory_above)


@given(n_slots=st.integers(9, 64), noise=st.floats(0, 0.1), seed=st.integers(0, 1 << 32))
@settings(max_examples=examples(15), deadline=None)
def test_fewer_groups_than_the_slots_need_are_split_until_these_are_even(n_slots: int, noise: float, seed: int) -> None:
    """64 groups over many slots that somebody asked for: some slots have twice the work of others, load or no load."""
    load = RandomLoad(n_slots, 64, 1_000_000, 1.0, noise, 0.0, np.random.default_rng(seed), np.ones(n_slots))
    uneven = load.of_slots().max() * n_slots
    for _ in range(20):
        load.reorganize(Controller(Settings()))
    assert load.of_slots().max() * n_slots <= min(uneven, 1.55)


@given(n_slots=st.integers(2, 16), noise=st.floats(0, 0.05), seed=st.integers(0, 1 << 32))
@settings(max_examples=examples(20), deadline=None)
def test_a_slot_that_is_three_times_as_slow_is_relieved_through_the_noise(
    n_slots: int, noise: float, seed: int
) -> None:
    paces = np.ones(n_slots)
    paces[0] = 3.0
    load = RandomLoad(n_slots, enough_groups(n_slots), 100_000, 1.0, noise, 0.0, np.random.default_rng(seed), paces)
    before = len(load.directory.of_slot(0))
    decisions = [one for _ in range(5) for one in load.reorganize(Controller(Settings()))]
    assert any(isinstance(one, Move) for one in instructions_of(decisions))
    assert len(load.directory.of_slot(0)) < before
