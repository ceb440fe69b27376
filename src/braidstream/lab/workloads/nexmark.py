"""Nexmark's streams: people register, offer things at auction, and bid, on a site with favourites.

    streams = Nexmark(seed=7)
    streams.tables(first=0, events=50_000)          # {"person": ..., "auction": ..., "bid": ...}
    streams.write(folder, events=5_000_000, events_per_file=100_000)

Events are numbered, and of every 50 the first is a person, the next three are auctions and 46 are bids. Event n happens
at n / rate seconds, to the millisecond. The numbers are those of the generator of Apache Beam, which other systems'
generators repeat: half of the bids (1 - 1 / `hot_auctions`) go to one auction, that of the last hundred's first; three
quarters are made by one of the newest people, three quarters of the auctions are by one seller, and these favourites
change with every hundred auctions and people. The others are drawn evenly from the last 100 auctions and 1,000 people,
and a few name one that does not exist yet (`_AUCTION_LEAD`, `_PERSON_LEAD`). An auction is open for up to twice the
time in which so many auctions begin as are open at once.

What differs from Beam's: random numbers are NumPy's; names of columns are `ts` for dateTime, and in snake case; texts
are letters of a fixed length, and `extra` pads rows to the same average sizes (200, 500 and 100 bytes).

Invariant: an event is a function of the seed and its number alone, so a shorter stream is a prefix of a longer one, and
files may be written in any pieces of whole `BLOCK`s. Cost: vectorized; about 0.5 s for a million events with padding.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braidstream.errors import InputError
from braidstream.lab.workloads.stream_files import append_files

__all__ = ["AUCTION", "BID", "BLOCK", "PERSON", "SCHEMAS", "Nexmark"]

Ints = npt.NDArray[np.int64]

PERSON, AUCTION, BID = "person", "auction", "bid"
PROPORTIONS = {PERSON: 1, AUCTION: 3, BID: 46}
_CYCLE = sum(PROPORTIONS.values())
BLOCK = 1000 * _CYCLE
"""Events are drawn in blocks of so many."""

_FIRST_ID = 1000
_FIRST_CATEGORY, _CATEGORIES = 10, 5
_HOT_EVERY = 100
_PERSON_LEAD, _AUCTION_LEAD = 10, 10
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_OTHER_CHANNELS = 10_000
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent",
           "Cheyenne")  # fmt: skip
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_BYTES = {PERSON: 200, AUCTION: 500, BID: 100}
_FIXED_BYTES = {PERSON: 100, AUCTION: 190, BID: 84}
"""What a row has without its padding, about."""

_TIME = pa.timestamp("us", tz="UTC")
SCHEMAS: Mapping[str, pa.Schema] = {
    PERSON: pa.schema(
        [("id", pa.int64()), ("name", pa.string()), ("email", pa.string()), ("credit_card", pa.string()),
         ("city", pa.string()), ("state", pa.string()), ("ts", _TIME), ("extra", pa.string())]
    ),
    AUCTION: pa.schema(
        [("id", pa.int64()), ("item_name", pa.string()), ("description", pa.string()), ("initial_bid", pa.int64()),
         ("reserve", pa.int64()), ("ts", _TIME), ("expires", _TIME), ("seller", pa.int64()), ("category", pa.int64()),
         ("extra", pa.string())]
    ),
    BID: pa.schema(
        [("auction", pa.int64()), ("bidder", pa.int64()), ("price", pa.int64()), ("channel", pa.string()),
         ("url", pa.string()), ("ts", _TIME), ("extra", pa.string())]
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Nexmark:
    """The streams, by their seed and the original's settings."""

    seed: int = 0
    rate: int = 10_000
    """Events a second of event time."""
    hot_auctions: int = 2
    """Of so many bids all but one go to the favourite auction; 1: there is none. So with bidders and sellers."""
    hot_bidders: int = 4
    hot_sellers: int = 4
    in_flight: int = 100
    """Auctions that are open at once."""
    active_people: int = 1000
    start_us: int = 0

    def __post_init__(self) -> None:
        for name in ("rate", "hot_auctions", "hot_bidders", "hot_sellers", "in_flight", "active_people"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", "1 or more", "leave it out for Nexmark's own")

    @property
    def longest_life_us(self) -> int:
        """No auction is open longer."""
        return 2 * self._horizon_ms * 1000 + 1000

    def tables(self, first: int, events: int) -> dict[str, pa.Table]:
        """The events from number `first` on; both are multiples of `BLOCK`."""
        if first % BLOCK or events % BLOCK or events < BLOCK:
            raise InputError(
                f"{events:,} events from number {first:,}", f"whole blocks of {BLOCK:,}", "round them to multiples"
            )
        blocks = [self._block(number) for number in range(first // BLOCK, (first + events) // BLOCK)]
        return {kind: pa.concat_tables([block[kind] for block in blocks]).combine_chunks() for kind in PROPORTIONS}

    def write(self, folder: str | os.PathLike[str], *, events: int, events_per_file: int) -> None:
        """Each stream as files in a folder of its name; file i of all three has the same stretch of events."""
        pieces = range(0, events, events_per_file)
        if events % events_per_file:
            raise InputError(f"{events:,} events in files of {events_per_file:,}", "whole files", "round one of them")
        for first in pieces:
            for kind, table in self.tables(first, events_per_file).items():
                append_files(Path(folder) / kind, [table])

    @property
    def _horizon_ms(self) -> int:
        events = self.in_flight * _CYCLE // PROPORTIONS[AUCTION]
        return events * 1000 // self.rate

    def _block(self, number: int) -> dict[str, pa.Table]:
        rngs = [np.random.default_rng([self.seed, number, kind]) for kind in range(3)]
        people, auctions, bids = (_event_numbers(number, kind) for kind in PROPORTIONS)
        return {
            PERSON: self._people(people, rngs[0]),
            AUCTION: self._auctions(auctions, rngs[1]),
            BID: self._bids(bids, rngs[2]),
        }

    def _people(self, events: Ints, rng: np.random.Generator) -> pa.Table:
        n = len(events)
        first, last = rng.integers(len(_FIRST_NAMES), size=n), rng.integers(len(_LAST_NAMES), size=n)
        cards = [_digits(rng.integers(10_000, size=n)) for _ in range(4)]
        columns = {
            "id": _last_person(events) + _FIRST_ID,
            "name": _words(_chosen(_FIRST_NAMES, first), " ", _chosen(_LAST_NAMES, last)),
            "email": _words(_letters(rng, n, 7), "@", _letters(rng, n, 5), ".com"),
            "credit_card": pc.binary_join_element_wise(*cards, " "),
            "city": _chosen(_CITIES, rng.integers(len(_CITIES), size=n)),
            "state": _chosen(_STATES, rng.integers(len(_STATES), size=n)),
            "ts": self._times(events),
            "extra": _padding(rng, n, PERSON),
        }
        return _table(PERSON, columns)

    def _auctions(self, events: Ints, rng: np.random.Generator) -> pa.Table:
        n, times = len(events), self._times(events)
        is_hot = rng.integers(self.hot_sellers, size=n) > 0
        hot = _last_person(events) // _HOT_EVERY * _HOT_EVERY
        initial = _prices(rng, n)
        life_ms = 1 + rng.integers(max(2 * self._horizon_ms, 1), size=n)
        columns = {
            "id": _last_auction(events) + _FIRST_ID,
            "item_name": _letters(rng, n, 20),
            "description": _letters(rng, n, 100),
            "initial_bid": initial,
            "reserve": initial + _prices(rng, n),
            "ts": times,
            "expires": times + 1000 * life_ms,
            "seller": np.where(is_hot, hot, self._somebody(events, rng)) + _FIRST_ID,
            "category": _FIRST_CATEGORY + rng.integers(_CATEGORIES, size=n),
            "extra": _padding(rng, n, AUCTION),
        }
        return _table(AUCTION, columns)

    def _bids(self, events: Ints, rng: np.random.Generator) -> pa.Table:
        n, last = len(events), _last_auction(events)
        is_hot = rng.integers(self.hot_auctions, size=n) > 0
        oldest = np.maximum(last - self.in_flight, 0)
        other = oldest + rng.integers(last - oldest + 1 + _AUCTION_LEAD)
        by_hot = rng.integers(self.hot_bidders, size=n) > 0
        favourite = _last_person(events) // _HOT_EVERY * _HOT_EVERY + 1
        other_channel = _words("channel-", pa.array(rng.integers(_OTHER_CHANNELS, size=n)).cast(pa.string()))
        named = _chosen(_HOT_CHANNELS, rng.integers(len(_HOT_CHANNELS), size=n))
        columns = {
            "auction": np.where(is_hot, last // _HOT_EVERY * _HOT_EVERY, other) + _FIRST_ID,
            "bidder": np.where(by_hot, favourite, self._somebody(events, rng)) + _FIRST_ID,
            "price": _prices(rng, n),
            "channel": pc.if_else(pa.array(rng.integers(2, size=n) == 0), named, other_channel),
            "url": _letters(rng, n, 30),
            "ts": self._times(events),
            "extra": _padding(rng, n, BID),
        }
        return _table(BID, columns)

    def _somebody(self, events: Ints, rng: np.random.Generator) -> Ints:
        """One of the people who are active, or of the few who come next."""
        people = _last_person(events) + 1
        active = np.minimum(people, self.active_people)
        return people - active + rng.integers(active + _PERSON_LEAD)

    def _times(self, events: Ints) -> Ints:
        return self.start_us + events * 1000 // self.rate * 1000


def _event_numbers(block: int, kind: str) -> Ints:
    """The numbers of a block's events of one kind."""
    before = {PERSON: 0, AUCTION: 1, BID: 4}[kind]
    places = np.arange(before, before + PROPORTIONS[kind])
    return (block * BLOCK + np.arange(0, BLOCK, _CYCLE)[:, None] + places).ravel()


def _last_person(events: Ints) -> Ints:
    """The newest person at an event, counted from 0."""
    return events // _CYCLE


def _last_auction(events: Ints) -> Ints:
    """The newest auction at an event, counted from 0; a bid comes after all three of its fifty, a person before."""
    cycle, place = np.divmod(events, _CYCLE)
    last: Ints = np.maximum(cycle * PROPORTIONS[AUCTION] + np.minimum(place, PROPORTIONS[AUCTION]) - 1, 0)
    return last


def _prices(rng: np.random.Generator, n: int) -> Ints:
    """In cents, evenly over six orders of magnitude."""
    return np.rint(10 ** (rng.random(n) * 6) * 100).astype(np.int64)


def _chosen(words: tuple[str, ...], places: Ints) -> pa.Array:
    return pa.array(words).take(pa.array(places))


def _words(*parts: pa.Array | str) -> pa.Array:
    """Texts put together, row by row."""
    return pc.binary_join_element_wise(*parts, "")


def _digits(numbers: Ints) -> pa.Array:
    """Four of them, with zeros in front."""
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 4, "0")


def _letters(rng: np.random.Generator, n: int, length: int) -> pa.Array:
    return _text(rng, np.full(n, length))


def _text(rng: np.random.Generator, lengths: Ints) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    letters = rng.integers(97, 123, size=int(offsets[-1]), dtype=np.uint8)
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(letters))


def _padding(rng: np.random.Generator, n: int, kind: str) -> pa.Array:
    """Letters that bring rows to their average size, a fifth more or less."""
    mean = _BYTES[kind] - _FIXED_BYTES[kind]
    return _text(rng, rng.integers(mean * 4 // 5, mean * 6 // 5 + 1, size=n))


def _table(kind: str, columns: Mapping[str, object]) -> pa.Table:
    schema = SCHEMAS[kind]
    return pa.table([_array(columns[field.name], field) for field in schema], schema=schema)


def _array(values: object, field: pa.Field) -> pa.Array:
    made = values if isinstance(values, pa.Array) else pa.array(values)
    return made if made.type == field.type else made.cast(field.type)
