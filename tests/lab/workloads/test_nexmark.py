"""Nexmark's streams: proportions, favourites, lives of auctions, and that an event depends on seed and number alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braidstream.errors import InputError
from braidstream.lab.workloads.nexmark import AUCTION, BID, BLOCK, PERSON, SCHEMAS, Nexmark

EVENTS = 4 * BLOCK


@pytest.fixture(scope="module")
def streams() -> dict[str, pa.Table]:
    return Nexmark(seed=7).tables(0, EVENTS)


def column(table: pa.Table, name: str) -> np.ndarray:
    values = table[name].cast(pa.int64()) if pa.types.is_timestamp(table[name].type) else table[name]
    return values.to_numpy()


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_others_bids(streams: dict[str, pa.Table]) -> None:
    assert {name: 50 * table.num_rows // EVENTS for name, table in streams.items()} == {PERSON: 1, AUCTION: 3, BID: 46}
    assert all(table.schema == SCHEMAS[name] for name, table in streams.items())


def test_times_never_go_back_and_follow_the_rate(streams: dict[str, pa.Table]) -> None:
    for table in streams.values():
        times = column(table, "ts")
        assert (np.diff(times) >= 0).all()
        assert (times % 1000 == 0).all()
        assert times[0] == 0
        assert times[-1] == pytest.approx(EVENTS / 10_000 * 1e6, rel=0.01)


def test_ids_are_numbered_from_a_thousand(streams: dict[str, pa.Table]) -> None:
    for name in (PERSON, AUCTION):
        assert column(streams[name], "id").tolist() == list(range(1000, 1000 + streams[name].num_rows))


@pytest.mark.parametrize("ratio", [1, 2, 5])
def test_favourites_have_their_shares(ratio: int) -> None:
    made = Nexmark(seed=1, hot_auctions=ratio, hot_bidders=ratio, hot_sellers=ratio).tables(0, EVENTS)
    n_auctions = np.arange(EVENTS // 50).repeat(46) * 3 + 2  # the newest auction at each bid
    people = np.arange(EVENTS // 50)
    hot_auction = n_auctions // 100 * 100 + 1000
    # One that is not hot is so by chance now and then: one of 110 auctions, of a thousand people.
    share = (column(made[BID], "auction") == hot_auction).mean()
    assert share == pytest.approx(1 - 1 / ratio + 1 / ratio / 111, abs=0.01)
    bidder = (column(made[BID], "bidder") == people.repeat(46) // 100 * 100 + 1001).mean()
    seller = (column(made[AUCTION], "seller") == people.repeat(3) // 100 * 100 + 1000).mean()
    assert bidder == pytest.approx(1 - 1 / ratio, abs=0.02)
    assert seller == pytest.approx(1 - 1 / ratio, abs=0.02)


def test_bids_are_on_auctions_that_are_open_at_once_or_come_next(streams: dict[str, pa.Table]) -> None:
    newest = np.arange(EVENTS // 50).repeat(46) * 3 + 2 + 1000
    back = newest - column(streams[BID], "auction")
    assert back.max() <= 100
    assert back.min() == -10


def test_an_auction_is_open_for_at_most_twice_the_time_in_which_as_many_begin(streams: dict[str, pa.Table]) -> None:
    life = column(streams[AUCTION], "expires") - column(streams[AUCTION], "ts")
    assert life.min() >= 1000
    assert life.max() <= Nexmark().longest_life_us
    assert life.mean() == pytest.approx(100 * 50 / 3 / 10_000 * 1e6, rel=0.02)


def test_prices_spread_over_six_orders_of_magnitude(streams: dict[str, pa.Table]) -> None:
    orders = np.log10(column(streams[BID], "price"))
    counts, _ = np.histogram(orders, bins=6, range=(2, 8))
    assert counts / len(orders) == pytest.approx(np.full(6, 1 / 6), abs=0.01)


def test_rows_have_the_originals_average_sizes(streams: dict[str, pa.Table]) -> None:
    sizes = {name: table.nbytes / table.num_rows for name, table in streams.items()}
    assert sizes == {PERSON: pytest.approx(200, rel=0.1), AUCTION: pytest.approx(500, rel=0.1),
                     BID: pytest.approx(100, rel=0.1)}  # fmt: skip


def test_an_event_depends_on_its_number_and_the_seed_alone(streams: dict[str, pa.Table], tmp_path: Path) -> None:
    later = Nexmark(seed=7).tables(2 * BLOCK, BLOCK)
    for name, table in later.items():
        first = 2 * table.num_rows
        assert streams[name].slice(first, table.num_rows).equals(table)
    assert not Nexmark(seed=8).tables(0, BLOCK)[BID].equals(Nexmark(seed=7).tables(0, BLOCK)[BID])
    Nexmark(seed=7).write(tmp_path, events=EVENTS, events_per_file=2 * BLOCK)
    for name, table in streams.items():
        assert pa.concat_tables(map(pq.read_table, sorted((tmp_path / name).iterdir()))).equals(table)


def test_pieces_that_are_no_whole_blocks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="whole blocks"):
        Nexmark().tables(0, BLOCK + 1)
    with pytest.raises(InputError, match="whole files"):
        Nexmark().write(tmp_path, events=3 * BLOCK, events_per_file=2 * BLOCK)
    with pytest.raises(InputError, match="hot_sellers is 0"):
        Nexmark(hot_sellers=0)
