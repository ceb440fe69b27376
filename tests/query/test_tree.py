"""Trees of joins: which inputs are joined first."""

from __future__ import annotations

from braidstream.query import Schema, parse
from braidstream.query.tree import Node, Statistics, plan_tree

SCHEMA = Schema.from_ddl("x long, y long, z long, v long, ts timestamp")


def tree(text: str, **statistics: dict) -> str:  # type: ignore[type-arg]
    query = parse(text, dict.fromkeys("ABCD", SCHEMA))
    return str(plan_tree(query, Statistics(**statistics)))


CHAIN = (
    "SELECT A.v AS a FROM A [RANGE 9 S], B [RANGE 9 S], C [RANGE 9 S], D [RANGE 9 S] "
    "WHERE A.x=B.x AND B.y=C.y AND C.z=D.z"
)


def test_slow_streams_are_joined_before_fast_ones() -> None:
    assert tree(CHAIN, rates={"A": 1, "B": 1, "C": 1000, "D": 1000}).startswith("(((A ⋈ B)")
    assert tree(CHAIN, rates={"A": 1000, "B": 1000, "C": 1, "D": 1}) in ("(A ⋈ (B ⋈ (C ⋈ D)))", "((A ⋈ B) ⋈ (C ⋈ D))")


def test_a_tree_is_bushy_where_that_makes_the_fewest_intermediate_results() -> None:
    few = {("B", "`y`"): 2.0, ("C", "`y`"): 2.0}
    assert tree(CHAIN, distinct=few) == "((A ⋈ B) ⋈ (C ⋈ D))"


def test_a_selective_class_is_used_first() -> None:
    many = {("B", "`y`"): 1e6, ("C", "`y`"): 1e6}
    assert "(B ⋈ C)" in tree(CHAIN, distinct=many)


def test_no_tree_has_a_cross_product() -> None:
    query = parse(CHAIN, dict.fromkeys("ABCD", SCHEMA))
    assert all(node.classes for node in plan_tree(query).nodes() if isinstance(node, Node))
