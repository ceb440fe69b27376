"""GROUP BY windows of time: what is read as one, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from braidstream.errors import QueryError
from braidstream.query import Query, Schema, parse
from braidstream.query.time_windows import expiring_groups

SECOND, MINUTE, HOUR = 1_000_000, 60_000_000, 3_600_000_000
SCHEMA = replace(Schema.from_ddl("id long, v long, at timestamp, ts timestamp"), time="ts")
STREAMS = dict.fromkeys(["i", "c"], SCHEMA)
JOIN = "FROM i JOIN c ON i.id = c.id AND c.ts BETWEEN i.ts AND i.ts + INTERVAL 30 MINUTES"


def parsed(group: str, select: str = "window.start AS s", from_: str = JOIN) -> Query:
    return parse(f"SELECT {select}, COUNT(*) AS n {from_} GROUP BY c.v, {group}", STREAMS)


@pytest.mark.parametrize(
    ("group", "size", "slide", "offset"),
    [
        ("window(c.ts, '1 hour')", HOUR, HOUR, 0),
        ("WINDOW(c.ts, '1 hour', '10 minutes')", HOUR, 10 * MINUTE, 0),
        ("window(ts, 'INTERVAL 1 hour', '1 hour', '75 minutes')", HOUR, HOUR, 15 * MINUTE),
        ("TUMBLE(c.ts, INTERVAL 90 SECONDS)", 90 * SECOND, 90 * SECOND, 0),
        ("HOP(c.ts, INTERVAL '10' MINUTE, INTERVAL 1 HOUR)", HOUR, 10 * MINUTE, 0),
    ],
)
def test_windows_of_time_in_every_form(group: str, size: int, slide: int, offset: int) -> None:
    from_ = JOIN if "(ts" not in group else "FROM c"
    query = parsed(group, from_=from_)
    assert query.window is not None
    assert (query.window.alias, query.window.size_us, query.window.slide_us) == ("c", size, slide)
    assert query.window.offset_us == offset
    assert [query.window.part(entry.sql) for entry in query.group_by] == [None, "start", "end"]
    assert query.outputs[0].sql == "`s`"


@pytest.mark.parametrize(
    "item", ["window.end AS s", "window(c.ts, '1 hour').end AS s", "TUMBLE_END(c.ts, INTERVAL 1 HOUR) AS s"]
)
def test_the_end_of_a_window_is_selected_in_every_form(item: str) -> None:
    query = parsed("window(c.ts, '1 hour')", item)
    assert query.window is not None
    assert {query.window.part(entry.sql) for entry in query.group_by if entry.name == "s"} == {"end"}


def test_a_join_whose_results_are_counted_in_windows_of_time_takes_intervals() -> None:
    query = parsed("window(c.ts, '1 hour')")
    assert [entry.window_us for entry in query.inputs] == [30 * MINUTE, 0]
    assert query.residual == ()


def test_a_stream_alone_is_counted_without_being_kept() -> None:
    query = parsed("window(c.ts, '1 hour')", from_="FROM c")
    assert [entry.window_us for entry in query.inputs] == [0]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("SELECT COUNT(*) AS n FROM c GROUP BY window(c.ts, '1 hour', '2 hours')", "is 3,600,000,000 us long"),
        ("SELECT COUNT(*) AS n FROM c GROUP BY window(c.at, '1 hour')", "at is not the event time of c"),
        ("SELECT COUNT(*) AS n FROM c GROUP BY window(c.ts, '1 month')", "the length of a month varies"),
        ("SELECT COUNT(*) AS n FROM c GROUP BY window(c.ts)", "window(c.ts) is no window of time"),
        ("SELECT COUNT(*) AS n, window(ts, '1 hour').start FROM c", "not in GROUP BY"),
        ("SELECT COUNT(*) AS n, window(ts, '1 hour') AS w FROM c GROUP BY window(ts, '1 hour')", "is no value"),
        ("SELECT COUNT(*) AS n, window(ts, '2 hours').start FROM c GROUP BY window(ts, '1 hour')", "two different"),
        ("SELECT COUNT(*) AS n FROM c GROUP BY TUMBLE(ts, INTERVAL 1 HOUR), window(ts, '2 hours')", "several windows"),
        ("SELECT COUNT(*) AS n FROM c [RANGE 1 HOUR] GROUP BY window(ts, '1 hour')", "which is joined with nothing"),
        ("SELECT COUNT(*) AS n FROM c GROUP BY c.v", "only one stream in FROM"),
        (
            "SELECT COUNT(*) AS n FROM i [RANGE 1 HOUR], c [RANGE UNBOUNDED] WHERE i.id = c.id "
            "GROUP BY window(c.ts, '1 hour')",
            "rows of c are kept for ever",
        ),
        (
            "SELECT COUNT(DISTINCT i.v) AS n FROM i [RANGE 1 HOUR], c [RANGE 1 HOUR] WHERE i.id = c.id",
            "COUNT(DISTINCT) over windows that slide",
        ),
    ],
)
def test_what_is_no_window_of_time_is_refused(text: str, wrong: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text, STREAMS)
    assert wrong in caught.value.wrong


def test_groups_that_fall_back_to_nothing_are_told_with_what_to_write_instead() -> None:
    sliding = "FROM i [RANGE 1 HOUR], c [RANGE 1 HOUR] WHERE i.id = c.id GROUP BY "
    hours = parse(f"SELECT COUNT(*) AS n {sliding} date_trunc('HOUR', c.ts)", STREAMS, "hourly")
    assert "groups fall back to 0 as rows expire" in (expiring_groups(hours, STREAMS) or "")
    assert "GROUP BY window(c.ts, '1 hour')" in (expiring_groups(hours, STREAMS) or "")
    for silent in ("c.v", "c.ts", "c.v % 24", "abs(c.v)"):
        text = f"SELECT COUNT(*) AS n {sliding} {silent}"
        assert expiring_groups(parse(text, STREAMS), STREAMS) is None, silent
    assert expiring_groups(parsed("window(c.ts, '1 hour')"), STREAMS) is None


@pytest.mark.parametrize(
    "computed",
    ["hour(c.ts)", "to_date(c.ts)", "CAST(c.ts AS DATE)", "date_format(i.ts, 'yyyy-MM-dd HH')", "year(c.ts) * 100"],
)
def test_whatever_is_computed_of_a_time_column_is_told(computed: str) -> None:
    sliding = "FROM i [RANGE 1 HOUR], c [RANGE 1 HOUR] WHERE i.id = c.id GROUP BY "
    told = expiring_groups(parse(f"SELECT COUNT(*) AS n {sliding} {computed}", STREAMS, "hourly"), STREAMS)
    assert told is not None
    assert told.startswith("query 'hourly' groups by ")
    assert ".ts" in told
