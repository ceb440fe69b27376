"""The plan of a flow in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from braidstream.control.controller import Controller
from braidstream.control.overflow import Overflow
from braidstream.kernels import loops
from braidstream.kernels.families import dimensions_of, shown_dimension
from braidstream.kernels.measures import Periods
from braidstream.model.join_kinds import JoinKind
from braidstream.model.stores import Store, sheddable, shown_store, spillable
from braidstream.options import Checked, options_of
from braidstream.plan.planner import Plan
from braidstream.plan.retention import decided_stores
from braidstream.plan.shapes import StreamShape
from braidstream.query import Query, describe_duration
from braidstream.query.duration import describe_signed
from braidstream.query.tree import Node

__all__ = ["explain", "explain_layout", "explain_memory"]


def explain(
    name: str,
    streams: Mapping[str, StreamShape],
    queries: Sequence[Query],
    plan: Plan,
    sinks: Mapping[str, str],
    router: str = "auto",
    better: Mapping[str, tuple[Node, float]] | None = None,
) -> str:
    """Streams, stores, joins and sinks, a line each.

    `sinks` says where results go; `better` are trees that what was measured would choose.
    """
    lines = [f"flow {name}"]
    for branch in plan.branches:
        stream = streams[branch.stream]
        way = "Parquet files read in the routing task" if branch.stream in plan.direct else "rows from Spark"
        way = way if branch.stores else "not read: no query needs it"
        idle = "" if stream.idle is None else f", the watermark goes on without it after {stream.idle} of silence"
        lines.append(f"  stream {stream.name}: time {stream.time}, delay {stream.delay}{idle}; {way}")
        for store in branch.stores:
            lines += _store(store)
    lines += _routing(plan, router)
    for query in queries:
        lines += _query(query, plan, sinks, (better or {}).get(query.name))
    if missing := loops.missing():
        lines.append(f"  kernels: NumPy's ({missing}); compiled ones are about twice as fast")
    return "\n".join(lines)


def explain_memory(overflow: Overflow, plan: Plan) -> Iterator[str]:
    """What happens to state beyond the budget, and which state that is not about."""
    size = f"{overflow.memory_bytes / (1 << 20):,.4g} MB"
    share = f"{overflow.spill_share:.0%}"
    if sheds := overflow.on_overflow == "shed":
        yield f"  memory: {size} of state a slot; beyond it tuples are shed ({overflow.shed_by}): results are missing"
    else:
        beyond = f"beyond it {share} is pushed, and what it would give comes later"
        yield f"  memory: {size} of active state a slot; {beyond}"
    verb = "shed" if sheds else "pushed"
    pushed = (sheddable if sheds else spillable)(plan.stores, plan.joins)
    stays = sorted(store.name for store in plan.stores if store.kept and store.name not in pushed)
    for name in stays:
        yield f"    {shown_store(name)} is never {verb}: {_needs(name, plan)} needs it"


def _needs(name: str, plan: Plan) -> str:
    if any(store.is_unkeyed and store.name == name for store in plan.stores):
        return "a join without an equality"
    return "an outer, semi, anti or as-of join" if name in _decided(plan) else "an aggregate or a join of a later stage"


def _decided(plan: Plan) -> set[str]:
    """The stores of joins that are no inner ones, those of rows without a key included."""
    found = {plan.stores[index] for index in decided_stores(plan.joins)}
    return {store.name for store in found} | {plan.stores[s.keyless].name for s in found if s.keyless is not None}


def explain_layout(controller: Controller | None, options: Checked) -> Iterator[str]:
    """Whether groups move, and the options that were chosen."""
    if controller is None:
        yield "  controller: off; groups stay where they are"
    else:
        looks = f"looks at the slots' loads every {controller.settings.every} epochs"
        yield f"  controller: {looks}; the layout of two runs may differ, their results do not"
    yield from _chosen_options(options)


def _chosen_options(options: Checked) -> Iterator[str]:
    """The options that are not as they would be if nothing were said."""
    values = vars(options)
    said = [replace(one, example=values[one.name]) for one in options_of(type(options)).values()]
    if told := [one.written for one in said if values[one.name] != one.default]:
        yield f"  options: {', '.join(told)} (docs/options.md)"


def _store(store: Store) -> Iterator[str]:
    compared = "keys compared where hashes agree" if store.verified else "hashes cannot collide"
    columns = [name for name in store.columns if not name.startswith(("hash of ", "value of "))]
    stage = f" at stage {store.stage + 1}" if store.stage else ""
    shown = ", ".join(columns) or "no columns"
    if store.is_unkeyed:
        yield f"    without a key for {_length(store.window_us)}: {shown}"
    else:
        yield f"    indexed on {', '.join(store.key)}{stage} for {_length(store.window_us)}: {shown} ({compared})"
    if store.filters and not store.takes_all:
        yield from (f"      rows that pass {condition}" for condition in store.filters)


def _routing(plan: Plan, router: str) -> Iterator[str]:
    """Which stores share the grids of heavy keys, and which keep every key in one slot."""
    if router == "hash":
        yield "  router hash: every key at one slot"
        return
    keyed = {store.family for store in plan.stores if store.family and not store.is_unkeyed}
    for family in sorted(keyed):
        grid = " x ".join(shown_dimension(name) for name in dimensions_of(family))
        yield f"  router {router}: heavy keys on a grid of {grid}"
    for store in plan.stores:
        if store.stream and not store.family and not store.summarized:
            needs = "outer, semi, anti and as-of joins" if store.name in _decided(plan) else "aggregates"
            shown = shown_store(store.name)
            yield f"  router {router}: {shown} stays hash-routed: {needs} need all rows of a key in one slot"


def _query(query: Query, plan: Plan, sinks: Mapping[str, str], better: tuple[Node, float] | None) -> Iterator[str]:
    tree = plan.trees.get(query.name)
    if query.kind is not JoinKind.INNER and tree is None:
        yield f"  query {query.name}: {query.kind.words} on one key, partitioned over the slots"
    elif query.is_unkeyed:
        yield f"  query {query.name}: join without an equality, all rows on one grid over the slots"
    elif tree is None:
        yield f"  query {query.name}: {len(query.inputs)}-way join on one key, partitioned over the slots"
    else:
        yield f"  query {query.name}: {len(query.inputs)}-way join on different keys, {tree.height} stages: {tree}"
    for entry in query.inputs:
        condition = f", where {entry.filter}" if entry.filter else ""
        condition += f", matched only where {entry.match}" if entry.match else ""
        yield f"    {entry.alias}: stream {entry.stream}, window {_length(entry.window_us)}{condition}"
    yield from _intervals(query)
    for node in tree.nodes() if tree is not None else ():
        on = "; ".join(" = ".join(f"{a}.{e}" for a, e in query.join_edges[c].members) for c in node.classes)
        yield f"    stage {node.height}: {node} on {on}"
    if better is not None:
        share = f"{better[1]:.0%} of the intermediate results"
        yield f"    as measured since, {better[0]} would make {share}: submit the query anew for that"
    yield from _unkeyed(query)
    yield from _kind(query)
    then = "on candidate matches" if query.kind is JoinKind.INNER else "on results"
    yield from (f"    then, {then}: {predicate}" for predicate in query.residual)
    yield from _aggregates(query, plan)
    if not plan.finished[query.name] and not query.is_aggregate:
        yield "    Spark evaluates the predicates and expressions on the matches"
    yield f"    to {sinks[query.name]}" if query.name in sinks else "    to no sink yet"


def _unkeyed(query: Query) -> Iterator[str]:
    """How a join without an equality finds its pairs, and at which cost."""
    if not query.is_unkeyed:
        return
    (left, right), pairs = query.aliases, "x".join(f" |{alias}| " for alias in query.aliases).strip()
    for band in query.bands:
        value = f"{left}.{band.left} {'+' if band.is_sum else '-'} {right}.{band.right}"
        low, high = ("" if bound is None else f"{bound:,g}" for bound in (band.low, band.high))
        yield "    band " + " <= ".join(part for part in (low, value, high) if part)
    if query.bands:
        yield "    tactic: by sorting on the first band and two binary searches, O(new log window + pairs in it) / p"
    else:
        yield f"    tactic: block against block; each new row meets the other window: {pairs} / p pairs on p slots"
    if query.residual and not query.bands:
        yield "    all of these pairs are written for Spark to evaluate: a band, or a comparison, would leave them out"


def _kind(query: Query) -> Iterator[str]:
    """What a join that is no inner one takes for a match, and when it puts out the rest."""
    for match in query.on:
        yield f"    a match satisfies {match.left} {match.operator} {match.right}"
    if query.tops:
        for place in range(len(query.inputs) - query.n_left, len(query.inputs)):
            what = "a match" if place > 1 else "a row"
            kept, last = f"{what} of {', '.join(query.aliases[:place])}", query.aliases[place]
            yield f"    {kept} without one of {last} is put out when the watermark has passed its windows"
        return
    for place in query.kind.closed:
        entry = query.inputs[place]
        when = "its time" if query.kind.is_asof else f"its time and {_length(entry.window_us)}"
        what = "is decided" if query.kind.is_asof else "without a match is put out"
        yield f"    a row of {entry.alias} {what} when the watermark has passed {when}"


def _intervals(query: Query) -> Iterator[str]:
    """How far apart in time the streams of a query with intervals may be: windows follow from that."""
    if not query.identity or (query.is_unkeyed and not query.gaps):
        return
    known = {(gap.left, gap.right): gap for gap in query.gaps}
    for left, right in combinations(query.inputs, 2):
        gap = known.get((left.alias, right.alias))
        low = None if right.window_us is None else -right.window_us
        low, high = (low, left.window_us) if gap is None else (gap.low_us, gap.high_us)
        least, most = ("any time" if bound is None else describe_signed(bound) for bound in (low, high))
        yield f"    {right.alias} comes {least} to {most} after {left.alias}"
    yield "    windows are as long as these intervals need"


def _aggregates(query: Query, plan: Plan) -> Iterator[str]:
    found = next((made for made in plan.aggregates if made.query == query.name), None)
    if found is None:
        return
    shown = ", ".join(f"{a.function.upper()}({a.argument or '*'})".replace("`", "") for a in query.aggregates)
    grouped = ", ".join(entry.sql.replace("`", "") for entry in query.group_by)
    yield f"    aggregates {shown}" + (f" by {grouped}" if grouped else "")
    if found.periods is not None:
        yield from _periods(found.periods)
    if found.enumeration is not None:
        yield "    enumerates composites, and aggregates them by group in a second Spark job: their number is the cost"
        return
    yield "    without enumerating composites: per key, counts and sums of the streams multiply"
    yield "    " + (
        "groups lie within keys: one exchange" if found.totals is None else "a second exchange adds up groups"
    )
    if not plan.finished[query.name]:
        yield "    Spark evaluates the expressions over the aggregates"


def _periods(periods: Periods) -> Iterator[str]:
    size, slide = describe_duration(periods.size_us), describe_duration(periods.slide_us)
    often = "" if periods.size_us == periods.slide_us else f", one every {slide}"
    wait = f" plus {describe_duration(periods.wait_us)}" if periods.wait_us else ""
    yield f"    in windows of {size}{often}: each is put out once, when the watermark has passed its end{wait}"


def _length(window_us: int | None) -> str:
    return "an unbounded time" if window_us is None else describe_duration(window_us)
