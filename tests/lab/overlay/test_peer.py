"""A peer's windows and memory, and the shedding strategies."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from braidstream.errors import InputError
from braidstream.lab.overlay.peer import Entry, Memory, Peer
from braidstream.lab.overlay.victims import Shed, at_random, least_productive, oldest, refuse, shedding_named

RNG = random.Random(1)


@dataclass
class Kept:
    deadline: int
    matches: float


STORED = {7: Kept(30, 5), 8: Kept(10, 9), 9: Kept(20, 0), 11: Kept(15, 0)}


@pytest.mark.parametrize(("shed", "victim"), [(oldest, 8), (least_productive, 11), (refuse, None)])
def test_each_strategy_gives_up_its_own_kind(shed: Shed, victim: int | None) -> None:
    assert shed(STORED, RNG) == victim


def test_random_shedding_gives_up_any_entry() -> None:
    assert {at_random(STORED, RNG) for _ in range(200)} == set(STORED)
    assert at_random({}, RNG) is None


def test_an_unknown_strategy_is_refused_with_a_hint() -> None:
    with pytest.raises(InputError, match="did you mean 'oldest'"):
        shedding_named("olddest")


def arrive(peer: Peer, now: int, port: int, row: int, window: int = 10, ports: int = 2) -> int:
    return peer.arrive(now, (0, 0), ports, port, Entry(now, now + window, (row,), 5), False).count


def peer(shed: Shed = oldest, limit: int | None = None, slack: int = 0) -> Peer:
    return Peer(Memory(per_input=limit), shed, slack, random.Random(1), shed is least_productive)


def test_window_bounds_are_inclusive() -> None:
    # 0         10   11      the window of the tuple at 0 is 10 long
    # x---------y    y'
    one = peer()
    assert [arrive(one, 0, 0, 1), arrive(one, 10, 1, 2), arrive(one, 11, 1, 3)] == [0, 1, 0]


def test_an_older_tuple_that_arrives_late_still_finds_its_partner_within_the_slack() -> None:
    late = Entry(10, 20, (9,), 5)
    for slack, found in ((20, 1), (0, 0)):
        one = peer(slack=slack)
        arrive(one, 0, 0, 1)  # ends at 10
        assert one.arrive(25, (0, 0), 2, 1, late, False).count == found


def test_three_streams_need_every_pair_within_its_window() -> None:
    one = peer()
    counts = [arrive(one, 0, 0, 1, ports=3), arrive(one, 6, 1, 2, ports=3), arrive(one, 9, 2, 3, ports=3)]
    assert counts == [0, 0, 1]
    assert arrive(one, 12, 2, 4, ports=3) == 0  # the tuple at 0 has ended, the one at 6 has not


@pytest.mark.parametrize(("shed", "found"), [(oldest, [0, 1]), (refuse, [1, 0])])
def test_a_full_window_gives_up_what_its_strategy_says(shed: Shed, found: list[int]) -> None:
    one = peer(shed, limit=1)
    arrive(one, 0, 0, 1)
    arrive(one, 5, 0, 2)
    assert one.n_shed == 1
    matched = one.arrive(6, (0, 0), 2, 1, Entry(6, 16, (3,), 5), True).entries
    assert [pair[0].members for pair in matched] == [((1,) if found[0] else (2,))]


def test_a_refused_tuple_is_not_joined_either() -> None:
    one = peer(refuse, limit=1)
    assert [arrive(one, 0, 0, 1), arrive(one, 1, 1, 2), arrive(one, 2, 1, 3), arrive(one, 3, 1, 4)] == [0, 1, 0, 0]


def test_memory_is_free_again_when_a_tuple_ends() -> None:
    one = peer(refuse, limit=1, slack=100)
    assert [arrive(one, 0, 0, 1), arrive(one, 11, 0, 2), arrive(one, 12, 1, 3)] == [0, 0, 1]
    assert one.n_shed == 0
    assert one.used == 2


def test_a_limit_of_the_peer_is_shared_by_all_its_windows() -> None:
    one = Peer(Memory(per_peer=3), oldest, 0, random.Random(1))
    for time in range(4):
        arrive(one, time, time % 2, time, window=100)
    assert one.used == 3
    assert sorted(entry.members for *_, entry in one.entries()) == [(1,), (2,), (3,)]
