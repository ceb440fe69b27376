"""Dissemination: everybody once, in log2(n) steps; and gossip where the tree is broken."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.errors import InputError
from braidstream.lab.overlay.chord import ChordNetwork
from braidstream.lab.overlay.dissemination import ChordTree, PastryTree, Tree, disseminate, dissemination_named
from braidstream.lab.overlay.gossip import gossip, spread, views
from braidstream.lab.overlay.ring import Ring


def children(tree: Tree) -> dict[int, list[int]]:
    return {node: np.flatnonzero(tree.parent == node).tolist() for node in range(len(tree.parent))}


def test_the_tree_of_the_eight_node_ring_is_the_papers() -> None:
    tree = disseminate(ChordTree(Ring.even(8, bits=3)), 8, root=0)  # DHTJoin, figure 2
    assert children(tree) == {0: [1, 2, 4], 1: [], 2: [3], 3: [], 4: [5, 6], 5: [], 6: [7], 7: []}


def test_pastry_sends_one_message_for_each_row_of_the_table() -> None:
    tree = disseminate(PastryTree(Ring.even(8, bits=3)), 8, root=0)  # one node of 1xx, 01x and 001 each (DHTJoin 3.4)
    first = children(tree)[0]
    assert sorted(node.bit_length() for node in first) == [1, 2, 3]
    assert tree.height == 3


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(0, 50), st.sampled_from(["chord", "pastry"]), st.data())
def test_every_node_gets_exactly_one_message(n: int, seed: int, name: str, data: st.DataObject) -> None:
    root = data.draw(st.integers(0, n - 1))
    tree = disseminate(dissemination_named(name, Ring.random(n, seed, bits=16)), n, root)
    assert tree.reached.all()
    assert tree.messages == tree.fan_out.sum() == n - 1
    others = np.arange(n) != root
    assert (tree.depth[others] == tree.depth[tree.parent[others]] + 1).all()


@pytest.mark.parametrize("bits_a_digit", [1, 2, 4])
def test_wider_digits_make_a_flatter_pastry_tree(bits_a_digit: int) -> None:
    tree = disseminate(PastryTree(Ring.even(4096, bits=12), bits_a_digit), 4096, root=77)
    assert tree.messages == 4095
    assert tree.height == 12 // bits_a_digit


@pytest.mark.parametrize("power", range(1, 15))
def test_the_depth_is_the_logarithm(power: int) -> None:
    n = 1 << power
    assert disseminate(ChordTree(Ring.even(n)), n, root=n // 3).height == power
    for seed in range(5):
        assert disseminate(ChordTree(Ring.random(n, seed)), n, root=n // 3).height <= power + 2


def test_children_are_nodes_that_the_parent_knows() -> None:
    ring = Ring.random(100, seed=8, bits=16)
    network = ChordNetwork.settled(ring.ids.tolist(), 16)
    for parent, sent_to in children(disseminate(ChordTree(ring), 100, root=42)).items():
        known = network.nodes[int(ring.ids[parent])].fingers
        assert set(ring.ids[sent_to].tolist()) <= set(known)


def test_a_failed_node_cuts_its_subtree_off() -> None:
    live = np.arange(8) != 4
    tree = disseminate(ChordTree(Ring.even(8, bits=3)), 8, root=0, live=live)
    assert np.flatnonzero(tree.reached).tolist() == [0, 1, 2, 3]


def test_arrival_times_add_up_along_the_tree() -> None:
    tree = disseminate(ChordTree(Ring.even(8, bits=3)), 8, root=0)
    assert tree.edges_of(lambda _, child: child * 10).tolist() == [0, 10, 20, 50, 40, 90, 100, 170]


@pytest.mark.parametrize("failed", [0.0, 0.1, 0.3, 0.5])
def test_gossip_reaches_every_live_node_where_the_tree_alone_does_not(failed: float) -> None:
    ring = Ring.random(512, seed=5)
    rng = np.random.default_rng(6)
    live = rng.random(512) >= failed
    live[9] = True
    view = views(ring)
    alone, with_gossip = (spread(ChordTree(ring), view, 9, live, source) for source in (None, rng))
    assert with_gossip.share == 1.0
    assert (alone.share == 1.0) == (failed == 0.0)
    assert with_gossip.gossip_messages <= sum(map(len, view))


def test_gossip_cannot_cross_a_gap_in_the_views() -> None:
    view = [[1], [0], [3], [2]]  # two islands
    everybody = np.ones(4, dtype=np.bool_)
    reached, messages, _ = gossip(view, np.array([True, False, False, False]), everybody, np.random.default_rng(1))
    assert reached.tolist() == [True, True, False, False]
    assert messages == 1  # node 1 has the sender in its list and sends nothing back


def test_an_unknown_dissemination_is_refused_with_a_hint() -> None:
    with pytest.raises(InputError, match="did you mean 'pastry'"):
        dissemination_named("pastri", Ring.even(4))
