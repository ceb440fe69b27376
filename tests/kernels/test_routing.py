"""Routing: every row that can be joined goes to the slot of its group, once; the others are counted."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.kernels.routing import Routes, SlotTable, Tally, deal_light, envelopes_to_batch, pack, route, unpack
from braidstream.kernels.rows import HASH, KEY, MASK, TIME
from braidstream.model.directory import HASH_BITS, Directory
from braidstream.model.envelopes import Content, Envelope, Kind
from braidstream.model.stores import Branch, Store
from tests.scale import examples

MANY = settings(max_examples=examples(100), deadline=None)
HASHES = st.integers(0, 2**64 - 1) | st.sampled_from([0, 2**63, 2**63 - 1, 2**64 - 1])
ROWS = st.lists(
    st.fixed_dictionaries(
        {"hash": st.none() | HASHES, "time": st.none() | st.integers(-5, 30), "mask": st.integers(0, 3)}
    ),
    max_size=40,
)


@st.composite
def directories(draw: st.DrawFn) -> tuple[Directory, int]:
    n_slots = draw(st.integers(1, 7))
    directory = Directory.of(draw(st.integers(1, 64)), n_slots)
    for _ in range(draw(st.integers(0, 5))):
        group = draw(st.sampled_from(directory.groups))
        if group.depth < HASH_BITS:
            directory = directory.split(group.id, draw(st.integers(0, n_slots - 1)))
    return directory, n_slots


def routes_of(directory: Directory, n_slots: int, watermark: int | None) -> Routes:
    regions = directory.regions.items()
    tables = {stage: SlotTable(region.depth, region.slots[region.table()]) for stage, region in regions}
    return Routes(tables, n_slots, watermark)


def store(*filters: str, takes_all: bool) -> Store:
    return Store(4, "R[k]", "R", ("k",), ("k",), True, filters, takes_all=takes_all, columns=("v",), window_us=None)


def branch_table(rows: list[dict[str, Any]]) -> pa.Table:
    """What a routing task is given: `v` numbers the rows."""
    signed = [None if r["hash"] is None else int(np.uint64(r["hash"]).view(np.int64)) for r in rows]
    return pa.table(
        {
            TIME: pa.array([r["time"] for r in rows], pa.timestamp("us", "UTC")),
            f"{HASH}@4": pa.array(signed, pa.int64()),
            f"{KEY}0@4": pa.array([str(r["hash"]) for r in rows]),
            f"{MASK}@4": pa.array([r["mask"] for r in rows], pa.int64()),
            "v": np.arange(len(rows)),
            "ts": pa.array([r["time"] for r in rows], pa.timestamp("us", "UTC")),
        }
    )


@MANY
@given(ROWS, directories(), st.none() | st.integers(0, 20), st.sampled_from(["all", "filtered", "both"]))
def test_every_row_goes_where_the_directory_says_or_is_counted(
    rows: list[dict[str, Any]], where: tuple[Directory, int], watermark: int | None, filters: str
) -> None:
    directory, n_slots = where
    own = store(*(() if filters == "all" else ("a", "b")), takes_all=filters != "filtered")
    branch = Branch(2, "R", (own,), ("v", "ts"))
    routes = routes_of(directory, n_slots, watermark)
    envelopes, tally = route(branch_table(rows), branch, routes)

    def is_late(row: dict[str, Any]) -> bool:
        return row["time"] is None or (watermark is not None and row["time"] < watermark)

    expected = [
        (directory.at(row["hash"]).slot, v)
        for v, row in enumerate(rows)
        if row["hash"] is not None and not is_late(row) and (filters != "filtered" or row["mask"])
    ]
    joined = [envelope for envelope in envelopes if envelope.kind == Kind(Content.ROWS, own.index)]
    assert len({envelope.slot for envelope in joined}) == len(joined)
    found = [(e.slot, v) for e in joined for v in unpack(e.blob)["v"].to_pylist()]
    assert sorted(found) == sorted(expected)
    for envelope in joined:
        table = unpack(envelope.blob)
        assert table.column_names == [HASH, TIME, f"{KEY}0", *([MASK] if filters != "all" else []), "v"]
        assert table[TIME].to_pylist() == [rows[v]["time"] for v in table["v"].to_pylist()]
        assert table[f"{KEY}0"].to_pylist() == [str(rows[v]["hash"]) for v in table["v"].to_pylist()]
    late = [v for v, row in enumerate(rows) if is_late(row)]
    aside = [
        v for e in envelopes if e.kind == Kind(Content.LATE, branch.index) for v in unpack(e.blob)["v"].to_pylist()
    ]
    assert sorted(aside) == late
    times = [row["time"] for row in rows if row["time"] is not None]
    keyless = sum(row["hash"] is None for row in rows)
    untimed = sum(row["time"] is None for row in rows)
    oldest = min((rows[v]["time"] for v in late if rows[v]["time"] is not None), default=None)
    counts = (len(rows), len(expected), len(late), keyless, max(times, default=None))
    assert tally == Tally("R", *counts, untimed=untimed, oldest_late=oldest)


@MANY
@given(ROWS, ROWS)
def test_tallies_add_up(some: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    routes = Routes({0: SlotTable(0, np.zeros(1, np.int32))}, 1, 10)
    branch = Branch(0, "R", (store(takes_all=True),), ())
    one, two, both = (route(branch_table(rows), branch, routes)[1] for rows in (some, others, some + others))
    assert one.plus(two) == two.plus(one) == both
    assert Tally.unpack(both.pack()) == both


@MANY
@given(st.lists(HASHES, min_size=1, max_size=40), directories())
def test_intermediate_results_are_dealt_alike(hashes: list[int], where: tuple[Directory, int]) -> None:
    directory, n_slots = where
    routes = routes_of(directory, n_slots, None)
    signed = np.array(hashes, dtype=np.uint64).view(np.int64)
    dealt = deal_light(pa.table({HASH: signed, "v": np.arange(len(hashes))}), 7, 0, routes)
    found = sorted((e.slot, v) for e in dealt for v in unpack(e.blob)["v"].to_pylist())
    assert found == sorted((directory.at(h).slot, v) for v, h in enumerate(hashes))


def test_rows_of_any_type_survive_the_exchange_in_parts() -> None:
    """An envelope holds a slice of sorted rows: buffers with offsets, NULLs and nested values."""
    table = pa.table(
        {
            "text": ["a", None, "", "ß✓", "x" * 50],
            "nested": [{"a": [1, None]}, None, {"a": None}, {"a": []}, {"a": [2, 3]}],
            "map": pa.array([[("k", 1)], None, [], [("a", None)], [("b", 2)]], pa.map_(pa.string(), pa.int32())),
            "amount": [Decimal("1.50"), None, Decimal("-2.25"), Decimal("0.00"), Decimal("9.99")],
            "blob": [b"", None, b"\x00", b"\xff", b"y" * 9],
            "flag": [True, None, False, True, None],
            "day": [date(2024, 2, 29), None, date(1, 1, 1), date(9999, 12, 31), None],
            "at": [datetime(2024, 1, 1, tzinfo=timezone.utc), None, None, None, datetime(1, 1, 1, tzinfo=timezone.utc)],
            "none": pa.nulls(5),
        }
    )
    for begin in range(5):
        for length in range(6 - begin):
            part = table.slice(begin, length)
            (batch,) = envelopes_to_batch([Envelope(3, Kind(Content.ROWS, 1), pack(part))])
            assert (batch.column("slot")[0].as_py(), Kind.of(batch.column("kind")[0].as_py())) == (
                3,
                (Content.ROWS, 1, 0),
            )
            assert unpack(batch.column("blob")[0].as_buffer()).equals(part)


@given(st.sampled_from(Content), st.integers(0, 100_000), st.integers(0, 255))
def test_a_kind_comes_out_of_its_number_as_it_went_in(content: Content, number: int, use: int) -> None:
    kind = Kind(content, number, use)
    assert Kind.of(kind.code) == kind
    assert 0 <= kind.code < 1 << 31
