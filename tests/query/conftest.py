"""The streams that the query tests are written over."""

from __future__ import annotations

import pytest

from braidstream.query import Schema

DECLARED = {
    # X, Y and Z are the streams of DHTJoin's q1 and q2.
    "X": "dest string, size long, B int",
    "Y": "dest string, size long, B int, C string",
    "Z": "dest string, C string",
    "R": "k long, v int, name string, price double, ts timestamp, place struct<city:string,zip:int>, points array<int>",
    "S": "k long, w int, name string, limit double, ts timestamp, labels map<string,int>, day date, f float",
    "T": "k long, u decimal(10,2), Odd string, `odd name` string, from int, labels map<string,int>",
}


@pytest.fixture(scope="session")
def streams() -> dict[str, Schema]:
    return {name: Schema.from_ddl(ddl) for name, ddl in DECLARED.items()}
