"""From queries to what runs: stores, branches and joins.

Queries over the same stream and key share a store, with the union of the columns they need and the longest window
(DHTJoin 3.2). A query of type 1 is one join. A query of type 2 is a tree of joins (`query.tree`), each at the stage of
its height: an intermediate result goes to a store of its own at the next stage, indexed on the attribute of its parent.
Its hash there is computed where the component that has the attribute is routed, and travels with it as a column.

Where all outputs of a query are plain columns the slots put out its result; where it has expressions or predicates
between streams, they put out the columns these need and Spark's SQL engine finishes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from braidstream.errors import QueryError, StreamError
from braidstream.kernels.families import with_families
from braidstream.kernels.hashing import INJECTIVE
from braidstream.kernels.measures import AggregateInput, AggregatePlan, Aggregation
from braidstream.kernels.rows import DEADLINE, TIME, stored_name
from braidstream.model.join_kinds import JoinKind
from braidstream.model.stores import (
    Branch,
    Closing,
    Comparison,
    Computed,
    Derived,
    Join,
    JoinInput,
    OutputColumn,
    Stage,
    Store,
)  # fmt: skip
from braidstream.plan.aggregate_plan import Draft, draft
from braidstream.plan.attempts import Attempts, tested
from braidstream.plan.direct_keys import key_columns
from braidstream.plan.joined_columns import (
    bit_of,
    carried_classes,
    carried_schema,
    derived_name,
    gaps_of,
    is_plain,
    refuse_equal_names,
    stored_names,
    summarized_stores,
    within,
)  # fmt: skip
from braidstream.plan.keys import cast, comparable, hash_name, sorted_classes, value_name
from braidstream.plan.plans import Plan
from braidstream.plan.retention import compared_columns, comparisons, decided_stores, matching, with_retention
from braidstream.plan.shapes import StreamShape
from braidstream.plan.unkeyed import band_columns, join_bands
from braidstream.query import KeyClass, Query
from braidstream.query.meaning import Types
from braidstream.query.tree import Node, Statistics, Tree, plan_tree

__all__ = ["Plan", "make_plan"]

_MOST_FILTERS = 62


def make_plan(
    streams: Mapping[str, StreamShape],
    queries: Sequence[Query],
    late: Mapping[str, bool],
    statistics: Statistics | None = None,
    since: Mapping[str, int] | None = None,
    filters: Mapping[str, Sequence[str]] | None = None,
    trees: Mapping[str, Node] | None = None,
    types: Types | None = None,
    bad: Collection[str] = (),
) -> Plan:
    """Plan a set of queries. `late` says for which streams late tuples are wanted; `since` when a query was submitted.

    `filters` gives the filters that a store's rows were marked with so far, which keep their bits; `trees` the trees
    of the queries that have state already, which is arranged by them. `types` tells those of aggregates. `bad` names
    the queries that have an output for rows of which an expression fails.
    """
    planner = _Planner(streams, since or {}, filters or {}, types, bad)
    chosen: dict[str, Node] = {}
    for query in queries if bad else ():
        planner.attempts.add(query, planner.draft(query) if query.is_aggregate else None, is_bad=query.name in bad)
    for query in queries:
        if query.type == 2:
            chosen[query.name] = (trees or {}).get(query.name) or plan_tree(query, statistics)
            planner.add_tree(query, chosen[query.name])
        elif query.is_aggregate:
            planner.add_aggregate(query)
        elif query.kind is not JoinKind.INNER:
            planner.add_kind(query)
        else:
            planner.add_flat(query)
    joins = tuple(planner.finished_joins())
    aggregates = tuple(planner.finished_aggregates())
    stores = with_families(
        planner.finished_stores(),
        [join for join in joins if len(join.inputs) > 1],
        {*summarized_stores(aggregates), *decided_stores(joins)},
    )
    branches = tuple(
        planner.attempts.on(
            Branch(
                index,
                name,
                tuple(store for store in stores if store.stream == name and not store.derived),
                stored_names(streams[name].schema.names) if late.get(name) else (),
                tuple(planner.computed.get(name, {}).values()),
                tells_all=bool(planner.drafts) or any(join.closings for join in joins),
            )
        )
        for index, name in enumerate(streams)
    )
    direct, plain = key_columns(streams, branches)
    finished = {query.name: is_plain(query) for query in queries}
    finished |= {plan.query: plan.selected is not None for plan in aggregates}
    return Plan(stores, branches, joins, direct, finished, chosen, planner.siblings, planner.parents, aggregates, plain)


_Address = tuple[str, tuple[str, ...], tuple[str, ...], int]
_Use = tuple[_Address, int | None, str | None]


class _Planner:
    """Collects stores and joins query by query."""

    def __init__(
        self,
        streams: Mapping[str, StreamShape],
        since: Mapping[str, int],
        filters: Mapping[str, Sequence[str]],
        types: Types | None,
        bad: Collection[str] = (),
    ) -> None:
        self.streams, self.since, self.filters, self._types, self._bad = streams, since, filters, types, bad
        self.attempts = Attempts({name: shape.schema for name, shape in streams.items()})
        self.stores: dict[_Address, Store] = {}
        self.computed: dict[str, dict[str, Computed]] = {}
        self.siblings: dict[str, frozenset[str]] = {}
        self.parents: dict[str, str] = {}
        self.drafts: list[tuple[str, Draft, list[_Use], tuple[int, ...], int | None, int | None]] = []
        self._joins: list[tuple[Join, Sequence[tuple[_Address, int | None, str | None]]]] = []
        self._kept: dict[str, dict[int, tuple[str | None, _Address | None]]] = {}
        """By query and input that is closed: the filter on its rows, and the store of those without a key."""
        self._keyless: dict[_Address, _Address] = {}
        self._compared: dict[str, list[str]] = {}
        """Of the query that is planned: the columns of each input that ON compares."""

    def finished_joins(self) -> Iterable[Join]:
        """The joins, with the bits of their filters, which are known when all queries are in."""
        for join, uses in self._joins:
            inputs = []
            for address, window_us, condition in uses:
                store = self.stores[address]
                inputs.append(JoinInput(store.index, window_us, bit_of(store, condition)))
            closings = []
            for place, (condition, without) in self._kept.get(join.query, {}).items():
                keyless = None if without is None else self.stores[without].index
                closings.append(Closing(place, bit_of(self.stores[uses[place][0]], condition), keyless))
            yield replace(join, inputs=tuple(inputs), closings=tuple(closings))

    def add_kind(self, query: Query) -> None:
        """A query that is no inner join: rows are kept until those they may be a partner of are closed."""
        routed, uses = with_retention(query), []
        kept: dict[int, tuple[str | None, _Address | None]] = {}
        for place, (entry, told) in enumerate(zip(query.inputs, routed.inputs, strict=True)):
            address = self._flat_leaf(routed, entry.alias, stored_names(entry.columns))
            condition = matching(entry)
            if condition is not None:
                self.stores[address] = self._with_use(self.stores[address], (), told.window_us, condition)
            if place in query.kind.closed:
                kept[place] = (entry.filter, self._without_key(address) if place in query.kind.kept else None)
            uses.append((address, entry.window_us, condition))
        self._kept[query.name] = kept
        self._add_result(query, {entry.alias: (i, "") for i, entry in enumerate(query.inputs)}, uses, 0)

    def _without_key(self, address: _Address) -> _Address:
        """The store of the rows of another that have no key; all it has is the other's, once all queries are in."""
        if address not in self._keyless:
            name = f"{self.stores[address].name} without key"
            self._keyless[address] = (name, (), (), self.stores[address].stage)
            self.stores[self._keyless[address]] = replace(self.stores[address], index=len(self.stores), name=name)
        return self._keyless[address]

    def add_flat(self, query: Query) -> None:
        """A query of type 1: one join on the key classes that all inputs share."""
        place = {entry.alias: (i, "") for i, entry in enumerate(query.inputs)}
        self._add_result(query, place, self._flat_uses(query), 0)

    def add_aggregate(self, query: Query) -> None:
        """An aggregate query: rows are routed as for a join, but summaries of them are kept instead."""
        made = self.draft(query)
        if made.enumeration is not None:
            self._add_composites(
                query, made, {e.alias: (i, "") for i, e in enumerate(query.inputs)}, self._flat_uses(query), 0
            )
            return
        taken = self._tested(query, made)
        timeless = replace(taken, inputs=tuple(replace(entry, window_us=0) for entry in taken.inputs))
        uses = []
        for place, entry in enumerate(taken.inputs):
            self.computed.setdefault(entry.stream, {}).update({added.name: added for added in made.computed[place]})
            address = self._flat_leaf(timeless, entry.alias, made.columns[place])
            uses.append((address, entry.window_us, entry.filter))
        kept = tuple(self._summary_store(query, entry.alias, entry.window_us, 0) for entry in query.inputs)
        totals = None if made.local else self._summary_store(query, "totals", None, 1)
        leased = any(m.least or m.largest for own in made.measures for m in own)
        leases = self._summary_store(query, "leases", 0, 1) if leased and not made.local else None
        self.drafts.append((query.name, made, uses, kept, totals, leases))

    def _tested(self, query: Query, made: Draft) -> Query:
        """The query with filters that rows do not pass of which an argument fails, if it has an output for these."""
        if query.name not in self._bad:
            return query
        filters = (tested(query, one.alias, self.streams[one.stream].schema, made) for one in query.inputs)
        inputs = (replace(one, filter=own) for one, own in zip(query.inputs, filters, strict=True))
        return replace(query, inputs=tuple(inputs))

    def draft(self, query: Query) -> Draft:
        """What follows of an aggregate query from its text and the types."""
        if self._types is None:
            wrong = f"query {query.name!r} has aggregates, and nobody says of which types they are"
            raise QueryError(wrong, "a plan that is told the types of expressions", "make_plan(..., types=...)")
        return draft(query, self._types)

    def _add_composites(
        self, query: Query, made: Draft, place: Mapping[str, tuple[int, str]], uses: Sequence[_Use], stage: int
    ) -> None:
        """The last join of an aggregate query that has to enumerate: all columns, and until when a composite lives."""
        assert made.enumeration is not None
        outputs, fields = [], []
        for entry in query.inputs:
            schema = self.streams[entry.stream].schema
            at, prefix = place[entry.alias]
            outputs += [
                OutputColumn(f"{entry.alias}.{name}", at, within(prefix, stored_name(name))) for name in entry.columns
            ]
            fields += [schema.field(c).with_name(f"{entry.alias}.{c}").with_nullable(True) for c in entry.columns]
        refuse_equal_names(query, outputs)
        schema = pa.schema([*fields, (DEADLINE, pa.int64())])
        since = self.since.get(query.name, -1)
        name = made.enumeration.join
        lives = query.window is None
        if not lives:
            outputs.append(OutputColumn(DEADLINE, 0, TIME))
        made_join = Join(name, (), tuple(outputs), schema, stage, since=since, lives=lives, is_counted=True)
        self._joins.append((replace(made_join, gaps=gaps_of(query, place)), uses))
        store = self._summary_store(query, "composites", 0, Stage.COMPOSITES)
        self.drafts.append((query.name, made, [], (store,), None, None))

    def _flat_uses(self, query: Query) -> list[_Use]:
        """The stores of all inputs of a query of type 1, as it uses them."""
        return [(self._flat_leaf(query, e.alias, stored_names(e.columns)), e.window_us, e.filter) for e in query.inputs]

    def _flat_leaf(self, query: Query, alias: str, columns: Sequence[str]) -> _Address:
        """The store of one input of a query of type 1."""
        classes, needed = sorted_classes(query), [*columns, *self._compare(query, alias)]
        keys = [cast(one, alias) for one in classes]
        return self._leaf(query, alias, keys, [c.type for c in classes], 0, needed, n_hashed=len(keys))

    def _summary_store(self, query: Query, part: str, window_us: int | None, stage: int) -> int:
        name = f"{query.name}:{query.fingerprint[:12]}:{self.since.get(query.name, -1)}:{part}"
        address = (name, (), (), stage)
        self.stores[address] = Store(
            len(self.stores), name, "", (), (), verified=False, filters=(), takes_all=True, columns=(),
            window_us=window_us, stage=stage, derived=True, summarized=True,
        )  # fmt: skip
        return self.stores[address].index

    def finished_aggregates(self) -> Iterable[AggregatePlan]:
        """The aggregate queries, with the bits of their filters, which are known when all queries are in."""
        for name, made, uses, kept, totals, leases in self.drafts:
            inputs = [AggregateInput(kept[0], 0, None, made.measures[0])] if made.enumeration is not None else []
            for (address, window_us, condition), measures in zip(uses, made.measures, strict=made.enumeration is None):
                store = self.stores[address]
                inputs.append(AggregateInput(store.index, window_us, bit_of(store, condition), measures))
            aggregation = Aggregation(
                name, tuple(inputs), made.grouped, made.group_by, made.local, made.aggregates, made.schema
            )
            yield AggregatePlan(aggregation, kept, totals, leases, made.selected, made.enumeration, made.periods)

    def finished_stores(self) -> tuple[Store, ...]:
        """The stores; rows that only aggregate queries need are routed, but not kept."""
        joined = {address for _, uses in self._joins if len(uses) > 1 for address, _, _ in uses}
        made = {a: replace(store, kept=store.derived or a in joined) for a, store in self.stores.items()}
        for address, without in self._keyless.items():
            own = made[without]
            made[without] = replace(made[address], index=own.index, name=own.name, stream="", verified=False, kept=True)
            made[address] = replace(made[address], keyless=own.index)
        return tuple(made.values())

    def add_tree(self, query: Query, tree: Node) -> None:
        """A query of type 2: one join for each node of its tree, children first. Aggregates enumerate composites."""
        carried = carried_classes(query, tree)
        self._compared = {alias: self._compare(query, alias) for alias in query.aliases}
        made: dict[frozenset[str], _Address] = {}
        parent = {child.aliases: node for node in tree.nodes() for child in (node.left, node.right)}
        for node in tree.nodes():
            stage = node.height - 1
            uses: list[tuple[_Address, int | None, str | None]] = []
            place: dict[str, tuple[int, str]] = {}
            for at, child in enumerate((node.left, node.right)):
                uses.append(self._child_use(query, node, child, stage, carried, made))
                prefix = isinstance(child, Node)
                place |= {alias: (at, f"{alias}." if prefix else "") for alias in child.aliases}
            above = parent.get(node.aliases)
            if node.right.aliases <= set(query.tops):
                name = query.name if above is None else derived_name(query, node)
                self._kept[name] = {0: (uses[0][2], self._without_key(uses[0][0]))}
            if above is None and query.is_aggregate:
                self._add_composites(query, self.draft(query), place, uses, stage)
            elif above is None:
                self._add_result(query, place, uses, stage)
            else:
                made[node.aliases] = self._add_derived(query, node, above, place, uses, carried)

    def _child_use(
        self,
        query: Query,
        node: Node,
        child: Tree,
        stage: int,
        carried: Mapping[str, Sequence[int]],
        made: Mapping[frozenset[str], _Address],
    ) -> tuple[_Address, int | None, str | None]:
        if isinstance(child, Node):
            return made[child.aliases], None, None
        entry = query.input(child.alias)
        classes = [query.join_edges[c] for c in node.classes]
        columns = [*stored_names(entry.columns), *self._compared[child.alias]]
        for c in carried[child.alias]:
            columns += self._compute(entry.stream, query.join_edges[c], child.alias)
        keys = [cast(c, child.alias) for c in classes]
        kinds, routed = [c.type for c in classes], with_retention(query)
        address = self._leaf(routed, child.alias, keys, kinds, stage, columns, n_hashed=1)
        return address, entry.window_us, entry.filter

    def _compare(self, query: Query, alias: str) -> list[str]:
        """The columns of an input that a match is decided by, computed where that is needed."""
        entry = query.input(alias)
        schema = self.streams[entry.stream].schema
        found = [*compared_columns(query, alias, schema), *band_columns(query, alias, schema)]
        for column in found:
            if column.computed is not None:
                self.computed.setdefault(entry.stream, {})[column.name] = column.computed
        return [column.name for column in found]

    def _add_derived(
        self,
        query: Query,
        node: Node,
        above: Node,
        place: Mapping[str, tuple[int, str]],
        uses: Sequence[tuple[_Address, int | None, str | None]],
        carried: Mapping[str, Sequence[int]],
    ) -> _Address:
        classes = [query.join_edges[c] for c in above.classes]
        outputs = []
        for alias in sorted(node.aliases, key=query.aliases.index):
            at, prefix = place[alias]
            names = [*stored_names(query.input(alias).columns), *self._compared[alias]]
            for c in carried[alias]:  # several classes may have the same expression of it
                names += [hash_name(query.join_edges[c], alias), value_name(query.join_edges[c], alias)]
            outputs += [
                OutputColumn(within(f"{alias}.", name), at, within(prefix, name)) for name in dict.fromkeys(names)
            ]
        refuse_equal_names(query, outputs)
        chosen = [next(a for a in query.aliases if a in node.aliases and a in c.aliases) for c in classes]
        first_at, first_prefix = place[chosen[0]]
        hash_ = OutputColumn(HASH_OF_NEXT, first_at, within(first_prefix, hash_name(classes[0], chosen[0])))
        keys = tuple(
            OutputColumn(f"key {i}", place[a][0], within(place[a][1], value_name(c, a)))
            for i, (c, a) in enumerate(zip(classes, chosen, strict=True))
        )
        name = derived_name(query, node)
        address = (name, (name,), (), node.height)
        verified = len(classes) > 1 or classes[0].type not in INJECTIVE
        windows = [query.input(alias).window_us for alias in node.aliases]
        shortest = min((w for w in windows if w is not None), default=None)
        self.stores[address] = Store(
            len(self.stores), name, "", (name,) * len(classes), (), verified, (), takes_all=True,
            columns=tuple(out.name for out in outputs), window_us=shortest, stage=above.height - 1, derived=True,
        )  # fmt: skip
        target = Derived(self.stores[address].index, hash_, keys)
        since = self.since.get(query.name, -1)
        made = Join(
            name, (), tuple(outputs), carried_schema(query, outputs, self._schemas(query)), node.height - 1, target,
            since, lives=query.is_aggregate and query.window is None, gaps=gaps_of(query, place),
        )  # fmt: skip
        self._joins.append((self._left(query, node, place, made), uses))
        # An aggregate is due in every epoch, and so is what a LEFT JOIN closes: their joins cannot be suspended.
        if not query.is_aggregate and query.kind is JoinKind.INNER:
            other = above.right if above.left.aliases == node.aliases else above.left
            self.siblings[name] = frozenset(query.input(alias).stream for alias in other.aliases)
            self.parents[name] = derived_name(query, above)
        return address

    def _left(self, query: Query, node: Node, place: Mapping[str, tuple[int, str]], made: Join) -> Join:
        """The join of a node, if that is a LEFT JOIN, with what decides a match, and whether it follows another one."""
        if not node.right.aliases <= set(query.tops):
            return made
        on = self._on(query, place, next(iter(node.right.aliases)))
        return replace(made, kind=query.kind, on=on, is_late=bool(node.left.aliases & set(query.tops)))

    def _schemas(self, query: Query) -> dict[str, pa.Schema]:
        return {entry.alias: self.streams[entry.stream].schema for entry in query.inputs}

    def _on(self, query: Query, place: Mapping[str, tuple[int, str]], last: str) -> tuple[Comparison, ...]:
        """What a match with an input satisfies, over the columns of what it is joined with."""
        return tuple(
            Comparison(within(place[alias][1], left), operator, right)
            for alias, left, operator, right in comparisons(query, last, self._schemas(query))
        )

    def _leaf(
        self,
        query: Query,
        alias: str,
        keys: Sequence[str],
        kinds: Sequence[str],
        stage: int,
        columns: Sequence[str],
        n_hashed: int,
    ) -> _Address:
        entry = query.input(alias)
        hashed = tuple(keys[:n_hashed])
        compared = tuple(comparable(key, kind) for key, kind in zip(keys, kinds, strict=True))
        address = (entry.stream, hashed, compared, stage)
        known = self.stores.get(address)
        if known is None:
            verified = len(keys) > 1 or kinds[0] not in INJECTIVE
            name = f"{entry.stream}[{', '.join(dict.fromkeys([*hashed, *keys]))}]" + (f"@{stage}" if stage else "")
            known = Store(
                len(self.stores), name, entry.stream, hashed, compared, verified, tuple(self.filters.get(name, ())),
                takes_all=False, columns=(), window_us=-1, stage=stage, marked=name in self.filters,
            )  # fmt: skip
        self.stores[address] = self._with_use(known, columns, entry.window_us, entry.filter)
        return address

    def _with_use(self, store: Store, columns: Sequence[str], window_us: int | None, condition: str | None) -> Store:
        self.attempts.uses(store.stream, condition)
        known = [*stored_names(self.streams[store.stream].schema.names), *self.computed.get(store.stream, {})]
        needed = {*store.columns, *columns}
        wider = None if window_us is None or store.window_us is None else max(store.window_us, window_us)
        filters = store.filters if condition is None or condition in store.filters else (*store.filters, condition)
        if len(filters) > _MOST_FILTERS:
            raise StreamError(
                f"stream {store.stream!r} has {len(filters)} filters on one key", f"at most {_MOST_FILTERS}"
            )
        return replace(
            store,
            columns=tuple(name for name in known if name in needed),
            window_us=wider,
            filters=filters,
            takes_all=store.takes_all or condition is None,
        )

    def _compute(self, stream: str, edge: KeyClass, alias: str) -> list[str]:
        """The columns that routing adds to a stream for a later exchange on a class."""
        key = cast(edge, alias)
        hashed = Computed(hash_name(edge, alias), key, is_hash=True)
        value = Computed(value_name(edge, alias), comparable(key, edge.type), is_hash=False)
        self.computed.setdefault(stream, {}).update({hashed.name: hashed, value.name: value})
        return [hashed.name, value.name]

    def _add_result(
        self,
        query: Query,
        place: Mapping[str, tuple[int, str]],
        uses: Sequence[tuple[_Address, int | None, str | None]],
        stage: int,
    ) -> None:
        """The last join of a query: its outputs, or all columns that Spark needs to finish."""
        if is_plain(query):
            wanted = [(out.name, *out.column) for out in query.outputs if out.column]
        else:
            wanted = [(f"{e.alias}.{name}", e.alias, name) for e in query.inputs for name in e.columns]
        outputs = [
            OutputColumn(name, place[alias][0], within(place[alias][1], stored_name(column)))
            for name, alias, column in wanted
        ]
        refuse_equal_names(query, outputs)
        fields = []
        for name, alias, column in wanted:
            schema = self.streams[query.input(alias).stream].schema
            fields.append(schema.field(column).with_name(name).with_nullable(True))
        if not wanted:  # a query of constants: its rows must be there to be counted
            outputs, fields = [OutputColumn(TIME, 0, TIME)], [pa.field(TIME, pa.int64())]
        since = self.since.get(query.name, -1)
        made = Join(query.name, (), tuple(outputs), pa.schema(fields), stage, since=since, kind=query.kind)
        on = self._on(query, place, query.aliases[-1])
        made = replace(made, is_unkeyed=query.is_unkeyed, bands=join_bands(query, self._schemas(query)))
        made = replace(made, on=on, gaps=gaps_of(query, place), is_late=len(query.tops) > 1)
        self._joins.append((made, uses))


HASH_OF_NEXT = "hash"
