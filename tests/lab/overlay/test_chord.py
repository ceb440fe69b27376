"""Chord finds the owner of every key, before and after churn, in about half of log2(n) hops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.errors import InputError
from braidstream.lab.overlay.chord import ChordNetwork, within
from braidstream.lab.overlay.ring import Ring
from tests.scale import examples

BITS = 10
identifiers = st.integers(0, (1 << BITS) - 1)


def assert_every_node_finds(network: ChordNetwork, keys: list[int]) -> None:
    for key in keys:
        expected = min((n for n in network.nodes if n >= key), default=min(network.nodes))
        for node in network.nodes:
            assert network.find(node, key).owner == expected


@given(st.sets(identifiers, min_size=1, max_size=24), st.lists(identifiers, min_size=1, max_size=8))
def test_every_node_finds_the_successor_of_any_key(ids: set[int], keys: list[int]) -> None:
    assert_every_node_finds(ChordNetwork.settled(ids, BITS), [*keys, *ids])


@settings(deadline=None, max_examples=examples(150))
@given(st.data(), st.sets(identifiers, min_size=1, max_size=12))
def test_lookups_are_right_again_after_churn_and_stabilization(data: st.DataObject, ids: set[int]) -> None:
    network = ChordNetwork.settled(ids, BITS, n_successors=4)
    for _ in range(data.draw(st.integers(1, 4))):
        grows = data.draw(st.booleans())
        for _ in range(data.draw(st.integers(1, 3))):  # fewer failures in a row than successors kept
            live = sorted(network.nodes)
            if grows:
                new = data.draw(identifiers.filter(lambda node: node not in network.nodes))
                network.join(new, data.draw(st.sampled_from(live)))
            elif len(live) > 1:
                what = data.draw(st.sampled_from([network.leave, network.fail]))
                what(data.draw(st.sampled_from(live)))
        network.stabilize()
        assert_every_node_finds(network, [*data.draw(st.lists(identifiers, max_size=5)), *network.nodes])


def test_a_lookup_passes_over_failed_nodes_before_any_repair() -> None:
    network = ChordNetwork.settled(range(0, 1 << BITS, 16), BITS)
    for node in (512, 256, 768):
        network.fail(node)
    assert network.find(0, 700).owner == 704
    assert network.find(0, 400).owner == 400


def test_data_follows_the_ring_when_nodes_join_and_leave() -> None:
    network = ChordNetwork.settled([10, 500, 900], BITS)
    network.put(10, 400, "tuple")
    network.join(450, 900)
    network.stabilize()
    assert network.nodes[450].stored == {400: ["tuple"]}
    network.leave(450)
    network.stabilize()
    assert [network.get(node, 400) for node in network.nodes] == [["tuple"]] * 3


def test_a_failed_node_takes_its_data_with_it() -> None:
    network = ChordNetwork.settled([10, 500, 900], BITS)
    network.put(10, 400, "tuple")
    network.fail(500)
    network.stabilize()
    assert network.get(10, 400) == []


def test_a_network_grows_from_one_node() -> None:
    network = ChordNetwork(BITS)
    for node in (700, 3, 1023, 512, 511, 64):
        network.join(node)
        network.stabilize()
    assert_every_node_finds(network, list(range(0, 1 << BITS, 7)))
    assert network.nodes == ChordNetwork.settled(network.nodes, BITS).nodes


def test_the_vectorized_ring_walks_the_same_paths_as_the_protocol() -> None:
    ring = Ring.random(200, seed=3, bits=20)
    network = ChordNetwork.settled(ring.ids.tolist(), 20)
    source = np.random.default_rng(4)
    nodes, keys = source.integers(0, 200, 400), source.integers(0, 1 << 20, 400)
    lookups = ring.look_up(nodes, keys)
    found = [network.find(int(ring.ids[node]), int(key)) for node, key in zip(nodes, keys, strict=True)]
    assert [f.owner for f in found] == ring.ids[lookups.owner].tolist()
    assert [f.hops for f in found] == lookups.hops.tolist()
    assert network.messages == lookups.load.sum()


@pytest.mark.parametrize("power", range(4, 15))
def test_mean_hops_are_within_a_tenth_of_half_the_logarithm(power: int) -> None:
    n, source = 1 << power, np.random.default_rng(power)
    means = []
    for seed in range(12):
        ring = Ring.random(n, seed)
        means.append(ring.look_up(source.integers(0, n, 4000), source.integers(0, ring.size, 4000)).mean_hops)
    assert np.mean(means) == pytest.approx(power / 2, rel=0.1)


@pytest.mark.parametrize("power", range(4, 11))
def test_on_a_full_ring_the_hops_are_the_one_bits_of_the_distance(power: int) -> None:
    n = 1 << power
    lookups = Ring.even(n, bits=power).look_up(np.full(n, 5), (np.arange(n) + 5) % n)
    assert lookups.hops.tolist() == [distance.bit_count() for distance in range(n)]


@given(identifiers, identifiers, identifiers)
def test_an_interval_of_the_circle_and_the_opposite_one_share_no_key(key: int, a: int, b: int) -> None:
    assert a == b or within(key, a, b) != within(key, b, a)


@pytest.mark.parametrize(("nodes", "bits"), [(0, 8), (300, 8), (4, 60)])
def test_impossible_rings_are_refused(nodes: int, bits: int) -> None:
    with pytest.raises(InputError):
        Ring.random(nodes, 1, bits)
