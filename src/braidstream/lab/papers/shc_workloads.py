"""The inputs of SHC's figures 6 and 7 as pairs of key streams: TPC-H's query 5 with skew, and digits by LSH.

Q5 joins customers of one region, orders of one year, all lines and suppliers of the region: three joins on three keys,
in this order, each a primary key on the left with foreign keys on the right. Skew is in the foreign keys: who
orders and who delivers. Nation and region are 25 and 5 rows, and are filters here; that customer and
supplier be of one nation is checked on the last join's matches and costs no exchange.

Cost: a second at scale 0.1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from braidstream.kernels.lsh import Lsh
from braidstream.lab.papers.shc_loads import Streams
from braidstream.lab.workloads.digits import DIMENSIONS, digit_histograms
from braidstream.lab.workloads.key_values import ZipfKeys
from braidstream.lab.workloads.tpch import FIRST_DAY, make_tpch

__all__ = ["RADII", "digit_streams", "q5_stages"]

Ints = npt.NDArray[np.int64]

RADII = (0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1)
_REGION = 5
"""Nations 0 to 4 are the region."""
_SUPPLIERS = 10_000
"""At scale 1."""


def q5_stages(scale: float, alpha: float, seed: int) -> list[Streams]:
    """The three joins of query 5: (primary keys, foreign keys) of each."""
    made = make_tpch(scale, seed=seed, skew=alpha)
    rng = np.random.default_rng([seed, 5])
    order, customer = (made.orders[name].to_numpy() for name in ("o_orderkey", "o_custkey"))
    day = (made.orders["o_orderdate"].to_numpy().astype("datetime64[D]") - FIRST_DAY).astype(np.int64)
    in_year = (day >= 2 * 365) & (day < 3 * 365)
    buyers = made.customer["c_custkey"].to_numpy()[made.customer["c_nationkey"].to_numpy() < _REGION]
    ordered = order[in_year & np.isin(customer, buyers)]
    line = made.lineitem["l_orderkey"].to_numpy()
    n_suppliers = max(2, round(_SUPPLIERS * scale))
    supplied = rng.permutation(n_suppliers)[ZipfKeys(n_suppliers, alpha).draw(len(line), rng)]
    suppliers = np.flatnonzero(rng.integers(25, size=n_suppliers) < _REGION)
    return [
        _streams(buyers, customer[in_year], seed),
        _streams(ordered, line, seed),
        _streams(suppliers, supplied[np.isin(line, ordered)], seed),
    ]


def digit_streams(radius: float, seed: int) -> Streams:
    """The buckets of the digits, every band of every vector a row, joined with themselves."""
    lsh = Lsh.sensitive(DIMENSIONS, radius, seed=seed)
    vectors = np.random.default_rng(seed).permutation(digit_histograms())
    buckets = lsh.buckets(vectors).ravel()
    return _streams(buckets, buckets, seed)


def _streams(left: Ints, right: Ints, seed: int) -> Streams:
    """The streams with their keys numbered densely."""
    known, dense = np.unique(np.concatenate([left, right]), return_inverse=True)
    return Streams(dense[: len(left)], dense[len(left) :], len(known), seed=seed)
