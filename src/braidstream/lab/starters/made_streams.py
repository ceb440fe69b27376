"""Made streams with names from four trades: ads and clicks, orders and payments, a vibration, trades and quotes.

Small enough to look at, and with what makes real ones awkward: few popular values, clicks that never come, orders paid
twice or not at all, trades between two quotes of one moment. Rows are in the order of their event times.

Invariant: the same seed makes the same rows. Cost: milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["RATE_HZ", "START_US", "advertising", "market", "shop", "vibration"]

Ints = npt.NDArray[np.int64]

START_US = 1_772_442_000_000_000
"""2 March 2026, nine o'clock, UTC."""
RATE_HZ = 4096
_SECOND_US = 1_000_000
_CAMPAIGNS = ("tea", "rice", "salt", "bread", "honey", "milk", "plums", "chalk")
_METHODS = ("card", "transfer", "voucher")
_SYMBOLS = ("OAK", "ELM", "ASH", "FIR", "YEW", "BAY", "FIG", "BOX")


def advertising(seed: int, n: int = 20_000) -> Mapping[str, pa.Table]:
    """An hour of impressions of ads, and the clicks on an eighth of them, a moment to twenty minutes later."""
    rng = np.random.default_rng(seed)
    shown_us, numbers = _moments(rng, n, 3600), np.arange(n)
    impressions = {"impression": numbers, "campaign": _drawn(rng, _CAMPAIGNS, n), "ts": _times(shown_us)}
    clicked = np.flatnonzero(rng.random(n) < 0.125)
    clicks = {
        "impression": clicked,
        "page": _drawn(rng, ("offer", "shop", "blog"), len(clicked)),
        "ts": shown_us[clicked] + _delays(rng, len(clicked), 150, 1200),
    }
    return {"impressions": pa.table(impressions), "clicks": _in_order(clicks)}


def shop(seed: int, n: int = 20_000) -> Mapping[str, pa.Table]:
    """Two hours of orders and their payments: one order in ten is never paid, one in fifty twice."""
    rng = np.random.default_rng(seed)
    ordered_us = _moments(rng, n, 7200)
    amount = np.round(rng.lognormal(3.5, 0.8, n), 2)
    orders = {"order_id": np.arange(n), "customer": rng.zipf(1.4, n) % 500, "amount": amount, "ts": _times(ordered_us)}
    paid = np.flatnonzero(rng.random(n) < 0.9)
    paid = np.concatenate([paid, paid[rng.random(len(paid)) < 0.02]])
    payments = {
        "order_id": paid,
        "method": _drawn(rng, _METHODS, len(paid)),
        "paid": amount[paid],
        "ts": ordered_us[paid] + _delays(rng, len(paid), 400, 3600),
    }
    return {"orders": pa.table(orders), "payments": _in_order(payments)}


def vibration(seed: int, seconds: int = 32) -> Mapping[str, pa.Table]:
    """Samples of a bearing that turns at 50 Hz; after five eighths of the time it begins to ring at 1,100 Hz."""
    rng = np.random.default_rng(seed)
    at = np.arange(RATE_HZ * seconds) / RATE_HZ
    level = np.sin(2 * np.pi * 50 * at) + 0.4 * np.sin(2 * np.pi * 150 * at + 1) + rng.normal(0, 0.5, len(at))
    ringing = np.clip((at - seconds * 0.625) / (seconds * 0.125), 0, 1) * 1.5
    level += ringing * np.sin(2 * np.pi * 1100 * at)
    moments = START_US + (at * _SECOND_US).astype(np.int64)
    return {"vibration": pa.table({"ts": _times(moments), "level": level})}


def market(seed: int, n: int = 40_000) -> Mapping[str, pa.Table]:
    """An hour of quotes, their prices a walk, and a fifth as many trades at or near the price."""
    rng = np.random.default_rng(seed)
    quoted_us, which = _moments(rng, n, 3600), rng.integers(0, len(_SYMBOLS), n)
    price = np.empty(n)
    for symbol in range(len(_SYMBOLS)):
        own = which == symbol
        price[own] = 20 + 10 * symbol + np.cumsum(rng.normal(0, 0.02, own.sum()))
    names = np.array(_SYMBOLS)
    bid, ask = np.round(price - 0.01, 2), np.round(price + 0.01, 2)
    quotes = {"symbol": names[which], "bid": bid, "ask": ask, "ts": _times(quoted_us)}
    traded = np.sort(rng.choice(n, n // 5, replace=False))
    paid = np.round(np.where(rng.random(len(traded)) < 0.5, bid[traded], ask[traded]), 2)
    trades = {
        "trade": np.arange(len(traded)),
        "symbol": names[which[traded]],
        "price": paid,
        "size": rng.integers(1, 50, len(traded)) * 10,
        "ts": quoted_us[traded] + _delays(rng, len(traded), 0.2, 5) - _SECOND_US // 10,
    }
    return {"quotes": pa.table(quotes), "trades": _in_order(trades)}


def _moments(rng: np.random.Generator, n: int, seconds: int) -> Ints:
    moments: Ints = np.sort(START_US + rng.integers(0, seconds * _SECOND_US, n))
    return moments


def _delays(rng: np.random.Generator, n: int, mean_s: float, most_s: float) -> Ints:
    """Waiting times, most of them short, none above `most_s`."""
    return np.minimum(rng.exponential(mean_s, n) * _SECOND_US, most_s * _SECOND_US).astype(np.int64)


def _drawn(rng: np.random.Generator, names: tuple[str, ...], n: int) -> npt.NDArray[np.str_]:
    """Names, each half as popular as the one before it, but for the last."""
    drawn: npt.NDArray[np.str_] = np.array(names)[np.minimum(rng.geometric(0.5, n), len(names)) - 1]
    return drawn


def _times(moments: Ints) -> pa.Array:
    return pa.array(moments).cast(pa.timestamp("us", tz="UTC"))


def _in_order(columns: dict[str, npt.NDArray[np.generic]]) -> pa.Table:
    """A table by event time; equal times as they were."""
    order = np.argsort(columns["ts"], kind="stable")
    return pa.table({name: _times(c[order]) if name == "ts" else c[order] for name, c in columns.items()})  # type: ignore[arg-type]
