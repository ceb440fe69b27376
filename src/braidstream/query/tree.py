"""Trees of joins for queries of type 2: which inputs are joined first (DHTJoin 3.3.2).

A query whose equalities are on different attributes is a pipeline: inputs are joined two at a time, the intermediate
result is re-indexed on the next attribute. The tree may be bushy. The planner tries every tree without cross products
(at most 8 inputs, so some thousands of splits) and takes the one whose intermediate results are the fewest.

The estimate: with rates r and windows W, a set of inputs joined by classes of selectivity s has N = prod(r W) prod(s)
live composites, and produces N sum(1/W) a second. Cost: O(3^m) for m inputs, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations

from braidstream.model.join_kinds import JoinKind
from braidstream.query.model import Query

__all__ = ["Leaf", "Node", "Plain", "Statistics", "Tree", "estimated", "plain_tree", "plan_tree", "tree_of"]

Plain = str | list["Plain"]
"""A tree for JSON: an alias, or a list of the two sides of a join."""

_LONG_S = 3600.0
"""What an unbounded window counts as, in seconds: only the comparison of trees depends on it."""


@dataclass(frozen=True)
class Leaf:
    """An input."""

    alias: str

    @property
    def aliases(self) -> frozenset[str]:
        """The input alone."""
        return frozenset({self.alias})

    @property
    def height(self) -> int:
        """Leaves are at the bottom."""
        return 0

    def __str__(self) -> str:
        return self.alias


@dataclass(frozen=True)
class Node:
    """A join of two subtrees on the equality classes that connect them, by their places in `Query.join_edges`."""

    left: Tree
    right: Tree
    classes: tuple[int, ...]

    @cached_property
    def aliases(self) -> frozenset[str]:
        """The inputs below."""
        return self.left.aliases | self.right.aliases

    @cached_property
    def height(self) -> int:
        """How many exchanges below and including this join."""
        return 1 + max(self.left.height, self.right.height)

    def nodes(self) -> Iterator[Node]:
        """All joins of the tree, children first."""
        for child in (self.left, self.right):
            if isinstance(child, Node):
                yield from child.nodes()
        yield self

    def __str__(self) -> str:
        return f"({self.left} ⋈ {self.right})"


Tree = Leaf | Node


@dataclass(frozen=True)
class Statistics:
    """What is known of streams and classes; what is not known counts the same for all."""

    rates: Mapping[str, float] = field(default_factory=dict)
    """Tuples a second of event time, by stream."""
    distinct: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Distinct values of a key expression, by (stream, expression)."""

    def rate(self, stream: str) -> float:
        """The rate of a stream."""
        return max(self.rates.get(stream, 1.0), 1e-9)


def plan_tree(query: Query, statistics: Statistics | None = None) -> Node:
    """The tree with the fewest intermediate results; among equals the lowest, then the one in the order of FROM."""
    if query.kind is not JoinKind.INNER:
        return _stacked(query, statistics)
    known = statistics or Statistics()
    order = {alias: i for i, alias in enumerate(query.aliases)}
    best: dict[frozenset[str], tuple[float, int, str, Tree]] = {
        frozenset({alias}): (0.0, 0, alias, Leaf(alias)) for alias in query.aliases
    }
    everything = frozenset(query.aliases)
    for size in range(2, len(order) + 1):
        for members in combinations(query.aliases, size):
            found = _best_split(query, frozenset(members), best, known, order)
            if found is not None:
                best[frozenset(members)] = found
    tree = best[everything][3]
    assert isinstance(tree, Node)
    return tree


def _stacked(query: Query, statistics: Statistics | None) -> Node:
    """The tree of LEFT JOINs: the last inputs one after the other with what those before them give."""
    kept = query.inputs[: -query.n_left]
    inner = replace(query, inputs=kept, kind=JoinKind.INNER)
    below: Tree = plan_tree(inner, statistics) if len(kept) > 1 else Leaf(kept[0].alias)
    for alias in query.tops:
        below = Node(below, Leaf(alias), _connecting(query, below.aliases, frozenset({alias})))
    assert isinstance(below, Node)
    return below


def plain_tree(tree: Tree) -> Plain:
    """The tree in a form for JSON."""
    return tree.alias if isinstance(tree, Leaf) else [plain_tree(tree.left), plain_tree(tree.right)]


def tree_of(query: Query, plain: Plain) -> Node:
    """The tree of a query from its plain form."""
    made = _tree_of(query, plain)
    assert isinstance(made, Node)
    return made


def _tree_of(query: Query, plain: Plain) -> Tree:
    if isinstance(plain, str):
        return Leaf(plain)
    left, right = (_tree_of(query, side) for side in plain)
    return Node(left, right, _connecting(query, left.aliases, right.aliases))


def estimated(query: Query, tree: Node, statistics: Statistics) -> float:
    """Intermediate results a second that a tree is estimated to produce."""
    return sum(_produced(query, node.aliases, statistics) for node in tree.nodes() if node.aliases != tree.aliases)


def _best_split(
    query: Query,
    whole: frozenset[str],
    best: Mapping[frozenset[str], tuple[float, int, str, Tree]],
    known: Statistics,
    order: Mapping[str, int],
) -> tuple[float, int, str, Tree] | None:
    candidates: list[tuple[float, int, str, Tree]] = []
    first, *others = sorted(whole, key=order.__getitem__)
    for n_left in range(len(others)):
        for chosen in combinations(others, n_left):
            left = frozenset({first, *chosen})
            right = whole - left
            classes = _connecting(query, left, right)
            if not classes or left not in best or right not in best:
                continue
            cost_left, _, _, tree_left = best[left]
            cost_right, _, _, tree_right = best[right]
            node = Node(tree_left, tree_right, classes)
            produced = sum(_produced(query, part, known) for part in (left, right) if len(part) > 1)
            candidates.append((cost_left + cost_right + produced, node.height, str(node), node))
    return min(candidates, key=lambda c: c[:3]) if candidates else None


def _connecting(query: Query, left: frozenset[str], right: frozenset[str]) -> tuple[int, ...]:
    return tuple(
        i
        for i, edge in enumerate(query.join_edges)
        if left.intersection(edge.aliases) and right.intersection(edge.aliases)
    )


def _produced(query: Query, members: frozenset[str], known: Statistics) -> float:
    """Composites a second of a set of inputs."""
    live = 1.0
    turnover = 0.0
    for alias in members:
        entry = query.input(alias)
        window = _LONG_S if entry.window_us is None else max(entry.window_us / 1e6, 1e-6)
        live *= known.rate(entry.stream) * window
        turnover += 1 / window
    for edge in query.join_edges:
        inside = [(alias, expression) for alias, expression in edge.members if alias in members]
        values = [known.distinct.get((query.input(alias).stream, expression), 1000.0) for alias, expression in inside]
        for value in sorted(values)[1:]:  # each equality keeps one in (the larger number of distinct values)
            live /= max(value, 1.0)
    return live * turnover
