"""Tables in queries: to which stream they are joined, what that means for the query, and what is refused."""

from __future__ import annotations

import pytest

from braidstream.errors import QueryError
from braidstream.query import Query, Schema, parse

STREAMS = {
    "orders": Schema.from_ddl("id long, cust long, amount double, ts timestamp"),
    "payments": Schema.from_ddl("id long, order_id long, cc string, ts timestamp"),
}
TABLES = {
    "customers": Schema.from_ddl("id long, name string, country string"),
    "countries": Schema.from_ddl("code string, tax double"),
}
PAID = "FROM orders o [RANGE 1 HOUR] JOIN payments p [RANGE 1 HOUR] ON o.id = p.order_id"


def parsed(text: str) -> Query:
    return parse(text, STREAMS, tables=TABLES)


def test_a_table_is_joined_to_the_stream_that_its_equality_names() -> None:
    query = parsed(f"SELECT o.amount, c.name {PAID} JOIN customers c ON o.cust = c.id WHERE c.country = 'DE'")
    (made,) = query.enriched
    assert (made.stream, made.lookups[0].condition) == ("orders", "(`cust` = `customers.id`)")
    first, second = query.inputs
    assert first.stream == made.name
    assert first.columns == ("amount", "customers.name")
    assert "`customers.country` = 'DE'" in (first.filter or "")
    assert "`customers is there`" in (first.filter or "")
    assert second.stream == "payments"
    assert [out.name for out in query.outputs] == ["amount", "name"]


def test_the_order_of_from_and_where_the_condition_stands_change_nothing() -> None:
    texts = [
        f"SELECT name {PAID} JOIN customers c ON o.cust = c.id",
        "SELECT name FROM orders o [RANGE 1 HOUR] JOIN customers c ON o.cust = c.id "
        "JOIN payments p [RANGE 1 HOUR] ON o.id = p.order_id",
        "SELECT name FROM customers c JOIN orders o [RANGE 1 HOUR] ON o.cust = c.id "
        "JOIN payments p [RANGE 1 HOUR] ON o.id = p.order_id",
        "SELECT name FROM orders o [RANGE 1 HOUR], payments p [RANGE 1 HOUR], customers c "
        "WHERE o.cust = c.id AND o.id = p.order_id",
    ]
    made = [parsed(text) for text in texts]
    assert len({query.enriched for query in made}) == 1
    assert len({query.key_classes for query in made}) == 1
    assert len({query.inputs[0].columns for query in made}) == 1


def test_left_and_inner_joins_share_the_stream_and_differ_in_a_filter() -> None:
    inner = parsed(f"SELECT name {PAID} JOIN customers c ON o.cust = c.id")
    left = parsed(f"SELECT name {PAID} LEFT JOIN customers c ON o.cust = c.id")
    assert inner.enriched == left.enriched
    assert left.inputs[0].filter is None
    assert inner.fingerprint != left.fingerprint


def test_a_table_may_hang_on_a_table_and_be_there_twice() -> None:
    query = parsed(
        f"SELECT a.tax AS here, b.tax AS there {PAID} LEFT JOIN customers c ON o.cust = c.id "
        "LEFT JOIN countries a ON c.country = a.code LEFT JOIN countries b ON b.code = p.cc "
        "LEFT JOIN customers d ON d.id = o.id AND d.name <> c.name"
    )
    by_stream = {made.stream: made for made in query.enriched}
    assert [one.name for one in by_stream["orders"].lookups] == ["customers", "countries", "customers#2"]
    assert by_stream["orders"].lookups[1].condition == "(`customers.country` = `countries.code`)"
    assert "`customers#2.name` <> `customers.name`" in by_stream["orders"].lookups[2].condition
    assert [one.condition for one in by_stream["payments"].lookups] == ["(`countries.code` = `cc`)"]


def test_what_else_an_inner_join_says_is_a_condition_of_the_streams() -> None:
    query = parsed(f"SELECT name {PAID} JOIN customers c ON o.cust = c.id AND c.country = p.cc")
    assert {one.members for one in query.key_classes} == {
        (("o", "`id`"), ("p", "`order_id`")),
        (("o", "`customers.country`"), ("p", "`cc`")),
    }


def test_stars_bring_the_columns_of_tables_in_their_place() -> None:
    text = "SELECT * FROM orders o [RANGE 1 HOUR] JOIN customers c ON o.cust = c.id JOIN payments p [RANGE 1 HOUR] "
    names = [out.name for out in parsed(text + "ON o.id = p.order_id").outputs]
    assert names == ["o_id", "cust", "amount", "o_ts", "c_id", "name", "country", "p_id", "order_id", "cc", "p_ts"]
    assert [out.name for out in parsed(f"SELECT c.* {PAID} LEFT JOIN customers c ON o.cust = c.id").outputs] == [
        "id",
        "name",
        "country",
    ]


def test_queries_without_tables_are_as_they_were() -> None:
    text = f"SELECT o.amount {PAID}"
    assert parsed(text) == parse(text, STREAMS)
    assert parsed(text).enriched == ()


OUTER = "SELECT o.id FROM orders o [RANGE 1 HOUR] LEFT JOIN payments p [RANGE 1 HOUR] ON o.id = p.order_id"
REFUSED = {
    f"{OUTER} JOIN countries n ON n.code = p.cc": "on the other side of a LEFT JOIN",
    "SELECT o.id FROM orders o [RANGE 1 HOUR] ASOF JOIN payments p [RANGE 1 HOUR] ON o.id = p.order_id "
    "LEFT JOIN countries n ON n.code = p.cc": "on the other side of a ASOF JOIN",
    "SELECT o.id FROM orders o [RANGE 1 HOUR] LEFT SEMI JOIN payments p [RANGE 1 HOUR] ON o.id = p.order_id "
    "LEFT JOIN countries n ON n.code = p.cc": "on the other side of a LEFT SEMI JOIN",
    f"SELECT o.id {PAID} FULL JOIN customers c ON o.cust = c.id": "a table has no event time",
    f"SELECT o.id {PAID} LEFT ANTI JOIN customers c ON o.cust = c.id": "a table has no event time",
    f"SELECT o.id {PAID} JOIN customers c [RANGE 1 HOUR] ON o.cust = c.id": "a window on customers, which is a table",
    f"SELECT o.id {PAID} JOIN customers c ON o.cust < c.id": "no equality connects table customers",
    f"SELECT o.id {PAID} JOIN customers c USING (id)": "USING is not supported",
    f"SELECT o.id {PAID} LEFT JOIN customers c ON o.cust = c.id AND p.cc = c.country": "ON of the LEFT JOIN with table",
    f"SELECT c.nam {PAID} JOIN customers c ON o.cust = c.id": "table 'customers' has no column 'nam'",
    f"SELECT o.id {PAID} JOIN customers o ON o.cust = o.id": "stands twice in FROM",
    f"SELECT id {PAID} JOIN customers c ON o.cust = c.id": "ambiguous",
    "SELECT o.id FROM orders o [RANGE 1 HOUR] JOIN customers c ON o.cust = c.id": "only one stream",
    "SELECT c.id FROM customers c JOIN countries n ON c.country = n.code": "and has no stream",
    "SELECT o.id FROM customers c LEFT JOIN orders o [RANGE 1 HOUR] ON o.cust = c.id "
    "JOIN payments p [RANGE 1 HOUR] ON o.id = p.order_id": "FROM begins with customers, which is a table",
}


@pytest.mark.parametrize("text", REFUSED, ids=list(REFUSED.values()))
def test_other_shapes_are_refused(text: str) -> None:
    with pytest.raises(QueryError, match=REFUSED[text]):
        parsed(text)
