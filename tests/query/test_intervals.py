"""Intervals between event times: what is read as one, what windows and gaps follow, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.errors import QueryError
from braidstream.query import Gap, Query, Schema, join, parse
from tests.scale import examples

SECOND, MINUTE = 1_000_000, 60_000_000
SCHEMA = replace(Schema.from_ddl("id long, v long, at timestamp, ts timestamp"), time="ts")
STREAMS = dict.fromkeys(["i", "c", "p"], SCHEMA)


def parsed(condition: str, from_: str = "i, c", equal: str = "i.id = c.id") -> Query:
    return parse(f"SELECT i.v AS v FROM {from_} WHERE {equal} AND {condition}", STREAMS)


def windows(query: Query) -> dict[str, int | None]:
    return {entry.alias: entry.window_us for entry in query.inputs}


@pytest.mark.parametrize(
    ("condition", "low", "high"),
    [
        ("c.ts BETWEEN i.ts + INTERVAL 1 MINUTE AND i.ts + INTERVAL 30 MINUTES", MINUTE, 30 * MINUTE),
        ("c.ts BETWEEN i.ts - INTERVAL '5 seconds' AND i.ts + INTERVAL '10' SECOND", -5 * SECOND, 10 * SECOND),
        ("c.ts >= i.ts AND c.ts <= i.ts + INTERVAL 2 MINUTES", 0, 2 * MINUTE),
        ("c.ts > i.ts AND c.ts < i.ts + INTERVAL 2 MINUTES", 1, 2 * MINUTE - 1),
        ("i.ts < c.ts AND i.ts + INTERVAL 2 MINUTES > c.ts", 1, 2 * MINUTE - 1),
        ("c.ts - i.ts BETWEEN INTERVAL 1 SECOND AND INTERVAL 9 SECONDS", SECOND, 9 * SECOND),
        ("c.ts - INTERVAL 9 SECONDS <= i.ts AND c.ts - INTERVAL 1 SECOND >= i.ts", SECOND, 9 * SECOND),
        ("i.ts BETWEEN c.ts - INTERVAL 9 SECONDS AND c.ts - INTERVAL 1 SECOND", SECOND, 9 * SECOND),
        ("c.ts BETWEEN i.ts - INTERVAL 9 SECONDS AND i.ts - INTERVAL 1 SECOND", -9 * SECOND, -SECOND),
        ("c.ts BETWEEN i.ts + INTERVAL 1 HOUR 30 MINUTES AND i.ts + (INTERVAL 2 HOURS)", 90 * MINUTE, 120 * MINUTE),
        ("c.ts BETWEEN i.ts + INTERVAL -5 SECONDS AND i.ts + INTERVAL 7 MILLISECONDS", -5 * SECOND, 7_000),
        ("(c.ts >= i.ts) AND (c.ts <= i.ts)", 0, 0),
    ],
)
def test_an_interval_gives_windows_and_gaps_and_is_no_predicate_any_more(condition: str, low: int, high: int) -> None:
    query = parsed(condition)
    assert query.residual == ()
    assert windows(query) == {"i": max(high, 0), "c": max(-low, 0)}
    is_in_windows = low <= 0 <= high
    assert query.gaps == (() if is_in_windows else (Gap("i", "c", low, high),))
    assert query.input("i").columns == ("v",)


@pytest.mark.parametrize(
    "condition",
    [
        "c.at <= i.ts",
        "c.ts <= i.ts + INTERVAL 1 MONTH",
        "c.ts <= i.ts + make_interval(0, 0, 0, 0, 0, 5)",
        "NOT c.ts < i.ts",
        "(c.ts <= i.ts OR c.v = 1)",
        "date_trunc('HOUR', c.ts) >= i.ts",
        "c.ts <= i.ts + INTERVAL '-1 minute 30 seconds'",
    ],
)
def test_what_is_no_interval_stays_a_predicate(condition: str) -> None:
    query = parsed(condition, "i [RANGE 1 HOUR], c [RANGE 1 HOUR]")
    assert len(query.residual) == 1
    assert query.gaps == ()
    assert windows(query) == {"i": 60 * MINUTE, "c": 60 * MINUTE}


def test_ranges_and_intervals_are_both_kept_to_and_the_narrower_one_decides_what_is_kept() -> None:
    query = parsed(
        "c.ts BETWEEN i.ts - INTERVAL 1 HOUR AND i.ts + INTERVAL 5 MINUTES", "i [RANGE 1 HOUR], c [RANGE 2 MINUTES]"
    )
    assert windows(query) == {"i": 5 * MINUTE, "c": 2 * MINUTE}
    only_one = parsed("c.ts >= i.ts - INTERVAL 5 MINUTES", "i [RANGE 1 HOUR], c")
    assert windows(only_one) == {"i": 60 * MINUTE, "c": 5 * MINUTE}


def test_bounds_of_three_streams_follow_from_each_other() -> None:
    first = "c.ts BETWEEN i.ts + INTERVAL 1 SECOND AND i.ts + INTERVAL 9 SECONDS"
    second = "p.ts BETWEEN c.ts AND c.ts + INTERVAL 5 SECONDS"
    query = parsed(f"{first} AND {second}", "i, c, p", "i.id = c.id AND c.id = p.id")
    assert windows(query) == {"i": 14 * SECOND, "c": 5 * SECOND, "p": 0}
    assert query.gaps == (Gap("i", "c", SECOND, 9 * SECOND), Gap("i", "p", SECOND, 14 * SECOND))


def test_a_query_with_windows_is_the_same_query_as_before_intervals_were_read() -> None:
    """Checkpoints know queries by their fingerprint: this one was written when it was a predicate on candidates."""
    text = "SELECT i.v AS v FROM i [RANGE 1 HOUR], c [RANGE 1 HOUR] WHERE i.id = c.id AND c.ts >= i.ts"
    then = parse(text, dict.fromkeys(["i", "c"], replace(SCHEMA, time=None)))
    now = parse(text, STREAMS)
    assert then.residual == ("`c`.`ts` >= `i`.`ts`",)
    assert now.residual == ()
    assert now.fingerprint == then.fingerprint


def test_the_predicates_of_a_join_of_several_stages_stay() -> None:
    condition = "c.ts BETWEEN i.ts AND i.ts + INTERVAL 9 SECONDS AND p.ts BETWEEN c.ts AND c.ts + INTERVAL 5 SECONDS"
    query = parsed(condition, "i, c, p", "i.id = c.id AND c.v = p.v")
    assert len(query.residual) == 2
    assert windows(query) == {"i": 14 * SECOND, "c": 5 * SECOND, "p": 0}


@pytest.mark.parametrize(
    ("condition", "from_", "wrong", "fix"),
    [
        ("c.ts BETWEEN i.ts + INTERVAL 2 MINUTES AND i.ts + INTERVAL 1 MINUTE", "i, c",
         "c is to come 2 minutes to 1 minute after i: the lower bound is above the upper one", "exchange"),
        ("c.ts >= i.ts + INTERVAL 2 MINUTES AND c.ts <= i.ts - INTERVAL 1 MINUTE", "i, c",
         "the lower bound is above the upper one", "exchange"),
        ("c.ts > i.ts AND c.ts < i.ts", "i, c", "the lower bound is above the upper one", "exchange"),
        ("c.ts >= i.ts + INTERVAL 2 MINUTES", "i [RANGE 1 MINUTE], c [RANGE 1 MINUTE]",
         "no times satisfy c.ts >= i.ts + INTERVAL '2' MINUTES together", "correct a bound"),
        ("c.ts >= i.ts", "i, c", "stream i has no window, and nothing says how much later than i c may be",
         "c.ts <= i.ts + INTERVAL 10 MINUTES"),
        ("c.at >= i.ts", "i, c", "stream i has no window", "or bound its time by an interval"),
    ],
)  # fmt: skip
def test_intervals_that_cannot_be_are_refused(condition: str, from_: str, wrong: str, fix: str) -> None:
    with pytest.raises(QueryError) as caught:
        parsed(condition, from_)
    assert wrong in caught.value.wrong
    assert fix in (caught.value.fix or "")


def test_an_aggregate_needs_windows_and_takes_an_interval_for_a_predicate() -> None:
    text = "SELECT count(*) AS n FROM i {0}, c {0} WHERE i.id = c.id AND c.ts BETWEEN i.ts AND i.ts + INTERVAL 1 MINUTE"
    with pytest.raises(QueryError, match="an aggregate is over the windows of its streams"):
        parse(text.format(""), STREAMS)
    query = parse(text.format("[RANGE 1 HOUR]"), STREAMS)
    assert len(query.residual) == 1
    assert windows(query) == {"i": 60 * MINUTE, "c": 60 * MINUTE}


def test_the_builder_says_intervals_too() -> None:
    made = (
        join("i", "c").on("id").between("i.ts", "c.ts", "-5 seconds", "+10 seconds").select("i.v AS v").parse(STREAMS)
    )
    assert windows(made) == {"i": 10 * SECOND, "c": 5 * SECOND}
    with pytest.raises(Exception, match="the lower bound 10 seconds is above the upper one, -5 seconds"):
        join("i", "c").between("i.ts", "c.ts", "10 seconds", "-5 seconds")


TIMES = st.integers(-6, 6)


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_gaps_and_windows_hold_exactly_where_the_conditions_do(data: st.DataObject) -> None:
    """Three streams, any comparisons: what was derived is neither wider nor narrower than what was written."""
    names = ["i", "c", "p"]
    ranges = {name: data.draw(st.none() | st.integers(0, 8), label=f"range of {name}") for name in names}
    pair = st.sampled_from([(a, b) for a in names for b in names if a != b])
    written = data.draw(
        st.lists(st.tuples(pair, st.sampled_from(["<", "<=", ">", ">="]), TIMES), min_size=1, max_size=5)
    )
    conditions = " AND ".join(f"{b}.ts {sign} {a}.ts + INTERVAL {us} MICROSECONDS" for (a, b), sign, us in written)
    from_ = ", ".join(
        f"{name} [RANGE UNBOUNDED]" if length is None else f"{name} [RANGE {length} us]"
        for name, length in ranges.items()
    )
    every = [dict(zip(names, (0, c, p), strict=True)) for c in range(-25, 26) for p in range(-25, 26)]
    expected = [one for one in every if _holds(one, ranges, written)]
    try:
        query = parsed(conditions, from_, "i.id = c.id AND c.id = p.id")
    except QueryError:
        assert expected == []
        return
    assert [one for one in every if _fits(one, query)] == expected
    assert expected


def _holds(times: dict[str, int], ranges: dict[str, int | None], written: list) -> bool:
    signs = {"<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__}
    newest = max(times.values())
    return all(length is None or newest - times[name] <= length for name, length in ranges.items()) and all(
        signs[sign](times[b], times[a] + us) for (a, b), sign, us in written
    )


def _fits(times: dict[str, int], query: Query) -> bool:
    newest = max(times.values())
    in_windows = all(e.window_us is None or newest - times[e.alias] <= e.window_us for e in query.inputs)
    gaps = {(gap.left, gap.right): gap for gap in query.gaps}
    apart = [(gaps[pair], times[pair[1]] - times[pair[0]]) for pair in combinations(times, 2) if pair in gaps]
    return in_windows and all(
        (gap.low_us is None or gap.low_us <= length) and (gap.high_us is None or length <= gap.high_us)
        for gap, length in apart
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT i.v AS v FROM i ASOF JOIN c ON i.id = c.id AND c.ts > i.ts - INTERVAL 1 HOUR", "looks back as far as"),
        (
            "SELECT i.v AS v FROM i JOIN c ON i.id = c.id AND c.ts BETWEEN i.ts AND i.ts + INTERVAL 5 SECONDS "
            "LEFT JOIN p ON c.id = p.id AND p.ts BETWEEN c.ts AND c.ts + INTERVAL 5 SECONDS",
            "a LEFT JOIN after other joins needs one each",
        ),
    ],
)
def test_where_windows_do_not_follow_from_intervals_the_message_says_why(text: str, reason: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text, STREAMS)
    assert "has no window" in caught.value.wrong
    assert reason in caught.value.wrong
    assert "interval" not in (caught.value.fix or "")
