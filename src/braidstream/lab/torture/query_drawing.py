"""A random query of a story: inner joins on one key and on several, every other kind, aggregates, windows of time."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from braidstream.lab.torture.asking import KINDS
from braidstream.lab.torture.story import SECOND, Ask, Bound, Input, TimeWindow

__all__ = ["draw_ask"]

_WEIGHTS = {
    "inner": 10, "left": 2, "right": 1, "full": 2, "semi": 2, "anti": 2, "asof": 2, "asof_left": 1, "on_top": 3,
    "aggregate": 4, "counted": 3, "unkeyed": 3,
}  # fmt: skip


def draw_ask(random: Random, name: str, streams: list[str], kind: str = "", *, plain: bool = False) -> Ask:
    """A query over some of the streams."""
    kinds = [one for one in _WEIGHTS if one != "on_top" or len(streams) > 2]
    kind = kind or random.choices(kinds, [_WEIGHTS[one] for one in kinds])[0]
    if plain:
        return Ask(name, "inner", tuple(_input(random, one) for one in streams), _on_one_key(streams))
    if kind in KINDS and kind != "inner":
        return _of_kind(random, name, streams, kind)
    if kind == "on_top":
        return _on_top(random, name, random.sample(streams, random.randint(3, len(streams))))
    if kind in ("counted", "unkeyed"):
        return (_counted if kind == "counted" else _unkeyed)(random, name, streams)
    chosen = random.sample(streams, random.randint(2, len(streams)))
    return (_aggregate if kind == "aggregate" else _inner)(random, name, chosen)


def _inner(random: Random, name: str, chosen: list[str]) -> Ask:
    if random.random() < 0.1:
        inputs = tuple(Input(f"{chosen[0]}{i}", chosen[0], random.randint(0, 12) * SECOND) for i in (1, 2))
        aliases = [entry.alias for entry in inputs]
        extra = tuple(_input(random, one) for one in chosen[1:])
        return Ask(name, "inner", (*inputs, *extra), _on_one_key([*aliases, *chosen[1:]]))
    predicates = _predicates(random, chosen)
    if random.random() < 0.25:
        bare = tuple(Input(one, one, None, is_unbounded=False) for one in chosen)
        return Ask(name, "inner", bare, _equalities(random, chosen), predicates, bounds=_bounds(random, chosen))
    inputs = tuple(_input(random, one) for one in chosen)
    return Ask(name, "inner", inputs, _equalities(random, chosen), predicates)


def _unkeyed(random: Random, name: str, streams: list[str]) -> Ask:
    """Without an equality: a band, comparisons, what only Spark can decide, or nothing but windows."""
    first, second = random.sample(streams, 2)
    inputs = tuple(Input(one, one, random.randint(0, 8) * SECOND) for one in (first, second))
    a, b = f"{first}.v", f"{second}.v"
    bands = [f"ABS({a} - {b}) < 4", f"{a} < {b}", f"{b} BETWEEN {a} - 1 AND {a} + 3", f"{a} + {b} >= 30"]
    others = [f"{a} != {b}", f"{a} * {b} > 200", f"{a} = 3 OR {b} > {a} + 20", f"{first}.j <= {second}.j"]
    predicates = random.sample(bands, random.choice([0, 1, 1, 1])) + random.sample(others, random.choice([0, 0, 1]))
    return Ask(name, "unkeyed", inputs, (), tuple(f"({one})" for one in predicates))


def _of_kind(random: Random, name: str, streams: list[str], kind: str) -> Ask:
    first, second = random.sample(streams, 2)
    pair = (random.choice([(f"{first}.k", f"{second}.k")] * 3 + [(f"{first}.j", f"{second}.j")]),)
    where = f"{first}.v % 2 = 0" if random.random() < 0.3 else None
    on = tuple(random.sample(_conditions(first, second), random.choice([0, 0, 1, 2])))
    if random.random() < 0.2 and not KINDS[kind].is_asof:
        bare = tuple(Input(one, one, None, is_unbounded=False) for one in (first, second))
        return Ask(name, kind, bare, pair, on, where, _bounds(random, [first, second]))
    inputs = tuple(Input(one, one, random.randint(0, 12) * SECOND) for one in (first, second))
    return Ask(name, kind, inputs, pair, on, where)


def _on_top(random: Random, name: str, chosen: list[str]) -> Ask:
    """One LEFT JOIN or several on top of an inner join, or of a stream alone."""
    n_left = random.randint(1, len(chosen) - 1)
    inputs = tuple(Input(one, one, random.randint(0, 12) * SECOND) for one in chosen)
    equalities = list(_on_one_key(chosen[:-n_left]))
    on: list[str] = []
    for place, own in enumerate(chosen[-n_left:], len(chosen) - n_left):
        before, column = random.choice(chosen[:place]), random.choice("kkj")
        equalities.append((f"{before}.{column}", f"{own}.{column}"))
        other = random.choice(chosen[:place])
        more = [f"{other}.v <= {own}.v", f"{other}.v + 1 > {own}.v", f"{own}.v % 2 = 0"]
        on += random.sample(more, random.choice([0, 0, 1]))
    first, second = chosen[0], chosen[1 % (len(chosen) - n_left)]
    where = f"{first}.v <= {second}.v + 1" if random.random() < 0.4 and first != second else None
    return Ask(name, "on_top", inputs, tuple(equalities), tuple(on), where, n_left=n_left)


def _aggregate(random: Random, name: str, chosen: list[str]) -> Ask:
    inputs = tuple(_input(random, one) for one in chosen)
    columns = [f"{one}.{column}" for one in chosen for column in "vj"]
    functions = ["COUNT", "SUM", "AVG", "MIN", "MAX"]
    wanted = tuple(f"{random.choice(functions)}({random.choice(columns)})" for _ in range(random.randint(0, 3)))
    keys = [*columns, *(f"{one}.k" for one in chosen)]
    group_by = tuple(random.sample(keys, random.choice([0, 1, 1, 2])))
    equalities, predicates = _equalities(random, chosen), _predicates(random, chosen)
    return Ask(name, "aggregate", inputs, equalities, predicates, group_by=group_by, aggregates=wanted)


def _counted(random: Random, name: str, streams: list[str]) -> Ask:
    chosen = random.sample(streams, random.choice([1, 2, 2]))
    size = random.randint(1, 12) * SECOND
    slide = random.choice([size, size, SECOND, -(-size // 2)])
    offset = random.choice([0, 0, SECOND // 2]) if slide > SECOND else 0
    inputs = tuple(Input(one, one, random.randint(0, 12) * SECOND) for one in chosen)
    first, last = chosen[0], chosen[-1]
    aggregates = (f"SUM({last}.v)", f"MAX({first}.v)", f"COUNT(DISTINCT {last}.j)")
    even = (f"{last}.v % 2 = 0",) if random.random() < 0.3 else ()
    equalities = _on_one_key(chosen)
    return Ask(
        name, "counted", inputs, equalities, even, aggregates=aggregates, counted=TimeWindow(size, slide, offset)
    )


def _input(random: Random, name: str) -> Input:
    return Input(name, name, random.choice([None, *[random.randint(0, 15) * SECOND] * 5]))


def _on_one_key(aliases: list[str]) -> tuple[tuple[str, str], ...]:
    return tuple((f"{left}.k", f"{right}.k") for left, right in pairwise(aliases))


def _equalities(random: Random, aliases: list[str]) -> tuple[tuple[str, str], ...]:
    """On one key, or along a tree: on `k` with the one before, on `j` with any."""
    if random.random() < 0.5:
        return _on_one_key(aliases)
    made = []
    for i, alias in enumerate(aliases[1:]):
        column, other = random.choice("kj"), random.choice(aliases[: i + 1])
        made.append((f"{other}.{column}", f"{alias}.{column}"))
    return tuple(made)


def _predicates(random: Random, aliases: list[str]) -> tuple[str, ...]:
    made = []
    for _ in range(random.choice([0, 0, 1, 2])):
        left, right = random.choice(aliases), random.choice(aliases)
        made.append(f"{left}.v % 2 = 0" if left == right else f"{left}.v <= {right}.v + 1")
    return tuple(dict.fromkeys(made))


def _conditions(first: str, second: str) -> list[str]:
    return [
        f"{first}.v <= {second}.v", f"{first}.v + 1 > {second}.v", f"{first}.v != {second}.v",
        f"{second}.v BETWEEN {first}.v - 2 AND {first}.v + 2", f"{first}.v % 3 > 0", f"{second}.v % 3 > 0",
    ]  # fmt: skip


def _bounds(random: Random, aliases: list[str]) -> tuple[Bound, ...]:
    made = []
    for first, second in pairwise(aliases):
        low = random.randint(-12, 8) * SECOND
        made.append(Bound(first, second, low, low + random.randint(0, 15) * SECOND))
    return tuple(made)
