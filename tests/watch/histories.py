"""Histories of flows that never ran, for tests of what watches flows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from braidstream.state.checkpoint import Checkpoint
from braidstream.state.history import NO_WORDS, Entry, HistoryWriter, Words

__all__ = ["Story"]

_START_US = 1_700_000_000_000_000


class Story:
    """A flow with every feature, told epoch by epoch."""

    def __init__(self, folder: Path, slots: int = 8, groups: int = 64, seed: int = 0) -> None:
        self.checkpoint = Checkpoint(str(folder), history=4096)
        self.checkpoint.take(ttl_s=3600.0)
        self._writer, self._random = HistoryWriter(self.checkpoint.files), np.random.default_rng(seed)
        self.slots = slots
        self.ids, self.placed = np.arange(groups), np.arange(groups) % slots
        self.depths = np.full(groups, int(np.ceil(np.log2(groups))))
        self.epoch = -1
        self._now_us = time.time_ns() // 1000
        self._weights = self._random.zipf(1.6, groups).clip(1, 60).astype(float)
        self._is_placed = True
        self._waiting: list[Entry] = []
        self.budget_bytes: int | None = None

    def start(self, **told: Any) -> Story:
        queries = {"pairs": "SELECT * FROM impressions [RANGE 10 MINUTES], clicks [RANGE 10 MINUTES] WHERE i.ad = c.ad"}
        known = {"name": "ads", "host": "node1", "process": 4242, "queries": queries}
        self._waiting.append(Entry("start", self._now_us, self.epoch, told=Words(**{**known, **told})))
        return self

    def mark(self, kind: str, **told: Any) -> Story:
        self._waiting.append(Entry(kind, self._now_us, self.epoch, told=Words(**told)))
        return self

    def move(self, group: int, slot: int) -> None:
        """A group goes elsewhere with the next epoch."""
        self.placed = self.placed.copy()
        self.placed[self.ids == group] = slot
        self._is_placed = True

    def split(self, group: int, slot: int) -> None:
        at = int(np.flatnonzero(self.ids == group)[0])
        self.depths = np.insert(self.depths, at + 1, self.depths[at] + 1)
        self.depths[at] += 1
        self.ids = np.insert(self.ids, at + 1, self.ids.max() + 1)
        self.placed = np.insert(self.placed, at + 1, slot)
        self._weights = np.insert(self._weights, at + 1, self._weights[at] / 2)
        self._is_placed = True

    def run(self, n: int = 1, *, told: Words = NO_WORDS, pushed: bool = False, late: int = 0) -> Story:
        for _ in range(n):
            self.epoch += 1
            self._now_us += 1_000_000
            self._waiting.append(self._epoch(told, pushed=pushed, late=late))
        return self

    def write(self) -> Story:
        self._writer.append(self._waiting)
        self._waiting = []
        return self

    def _epoch(self, told: Words, *, pushed: bool, late: int) -> Entry:
        random, wave = self._random, 1 + 0.3 * np.sin(self.epoch / 25)
        loads = (self._weights * random.uniform(0.7, 1.3, len(self.ids)) * wave * 40).astype(np.int64)
        held = np.bincount(self.placed, self._weights, self.slots) * 6e5 * (1 + 0.05 * np.sin(self.epoch / 9))
        rows = int(loads.sum())
        numbers = {
            "total_s": 0.62, "routing_s": 0.06 * wave, "exchange_s": 0.11, "join_s": 0.21 * wave,
            "store_s": 0.05, "deliver_s": 0.08, "commit_s": 0.05, "engine_s": 0.06, "spark_s": 0.08,
            "state_rows": int(held.sum() / 60),
            "state_bytes": int(held.sum()), "pushed_bytes": int(held[0] / 3) if pushed else 0,
            "pushed_groups": int(pushed), "budget_bytes": self.budget_bytes or int(held.max() * 1.15),
            "n_slots": self.slots, "n_groups": len(self.ids),
            "watermark": _START_US + self.epoch * 1_000_000 - 9_000_000,
        }  # fmt: skip
        at = _START_US + self.epoch * 1_000_000
        away = np.zeros(self.slots, np.int64)
        away[0] = numbers["pushed_bytes"]
        lists: dict[str, Any] = {
            "streams": ["clicks", "impressions"], "stream_rows": [rows // 3, rows - rows // 3],
            "stream_late": [late, 0], "stream_newest": [at - 4_000_000 - self.epoch % 7 * 300_000, at],
            "stream_delay": [5_000_000, 2_000_000], "queries": ["pairs"], "query_matches": [rows * 3],
            "slots": np.arange(self.slots), "slot_rows": np.bincount(self.placed, loads, self.slots).astype(np.int64),
            "slot_matches": np.zeros(self.slots, np.int64), "slot_busy_s": held / held.max() * 0.2,
            "slot_active": held.astype(np.int64), "slot_cells": (held * 0.1).astype(np.int64), "slot_pushed": away,
            "loaded_groups": self.ids, "load_rows": loads, "load_matches": loads * 3,
        }  # fmt: skip
        if self._is_placed:
            lists |= {"group_ids": self.ids, "group_slots": self.placed, "group_depths": self.depths}
            lists["group_stages"] = np.zeros(len(self.ids), np.int64)
            self._is_placed = False
        return Entry("epoch", self._now_us, self.epoch, 0, numbers, lists, told)
