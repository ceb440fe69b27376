"""Declarations that change between epochs, on the engine without Spark: every folder has what it should, to the row."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from braidstream.control.overflow import Overflow
from braidstream.lab.testing import oracle
from braidstream.lab.testing.queries import QueryHarness
from braidstream.lab.testing.strategies import Case
from tests.backends import tables
from tests.kernels import stories
from tests.kernels.test_queries_engine import SCHEMA, TEMPLATES, harness_of, seen_by
from tests.kernels.test_streams_join import leftovers, often_compacted, with_a_fault

N_EPOCHS = 7


@dataclass(frozen=True)
class Life:
    """Results of one query in one folder: of rows that arrived since an epoch, found in epochs from one to another."""

    folder: str
    template: Any
    since: int
    begin: int
    end: int = 99

    def rows(self, case: Case) -> Counter[Any]:
        return seen_by(case, self.template, self.since, self.end) - seen_by(case, self.template, self.since, self.begin)


@dataclass
class World:
    """What is declared, and what has been: by name the text, its folder and its life."""

    harness: QueryHarness
    case: Case
    random: Random
    now: dict[str, tuple[str, Life]]
    past: list[Life]
    kinds: Counter[str]
    n_names: int = 0

    def fresh(self, stem: str) -> str:
        self.n_names += 1
        return f"{stem}{self.n_names}"

    def query(self, like: Any = None) -> tuple[str, Any]:
        """Some query, or one that has the streams and keys of another, other conditions and shorter windows."""
        random = self.random
        if like is None:
            names, equalities = TEMPLATES[random.choice(sorted(TEMPLATES))]
            windows = {name: random.choice([None, 2, 10, 25]) for name in names}
            windows = {name: None if w is None else w * stories.SECOND for name, w in windows.items()}
        else:
            windows, equalities, _ = like
            shorter = random.choice([0, 0, 1])
            windows = {name: w and max(w - shorter * stories.SECOND, 0) for name, w in windows.items()}
        where, checks = self.predicates(list(windows))
        outputs = ", ".join(f"{name}.v AS {name}v, {name}.k AS {name}k" for name in windows)
        clause = stories.from_clause(self.case, windows)
        text = f"SELECT {outputs} FROM {clause} WHERE {stories.equal(equalities)}{where}"
        return text, (windows, equalities, checks)

    def predicates(self, names: list[str]) -> tuple[str, list[Any]]:
        """None, a filter, or a condition between two streams."""
        left, right = self.random.sample(names, 2)
        return self.random.choice(
            [
                ("", []),
                (f" AND {left}.v % 2 = 0", [lambda c: c[left]["v"] % 2 == 0]),
                (f" AND {left}.v <= {right}.v + 1", [lambda c: c[left]["v"] <= c[right]["v"] + 1]),
            ]
        )

    def changed(self, number: int) -> None:
        """Some queries more, fewer, called otherwise, or others under their names."""
        wanted, texts = dict(self.now), {}
        for name in [name for name in self.now if name != "base"]:
            how = self.random.choice(["stay", "stay", "go", "rename", "rename", "alter", "alter", "replace"])
            text, life = wanted.pop(name)
            if how in ("alter", "replace"):
                text, template = self.query(life.template if how == "alter" else None)
                texts[name] = (text, replace(life, template=template))
            elif how != "go":
                texts[self.fresh("a") if how == "rename" else name] = (text, life)
        if len(texts) < 4:
            text, template = self.query()
            name = self.fresh("q")
            texts[name] = (text, Life(f"out of {name}", template, number, number))
        texts["base"] = self.now["base"]
        declared = {name: (text, life.folder) for name, (text, life) in texts.items()}
        steps = self.harness.evolve(declared)
        self.kinds.update(step.kind for step in steps)
        self._told(number, texts, {step.name: step.kind for step in steps})

    def _told(self, number: int, texts: dict[str, tuple[str, Life]], kinds: dict[str, str]) -> None:
        for name, (_, life) in self.now.items():
            if kinds.get(name) in ("withdraw", "alter", "replace"):
                self.past.append(replace(life, end=number))
        for name, (text, life) in texts.items():
            if kinds.get(name) == "replace":
                texts[name] = text, replace(life, since=number, begin=number)
            elif kinds.get(name) == "alter":
                texts[name] = text, replace(life, begin=number)
        self.now = texts


def some_case(random: Random) -> Case:
    """Three streams with few keys, each in the order of time, in epochs of about ten seconds."""
    streams, epochs = [], [dict[str, list[Any]]() for _ in range(N_EPOCHS)]
    for name in "ABC":
        times = sorted(random.randint(0, 10 * N_EPOCHS - 1) for _ in range(5 * N_EPOCHS))
        rows = [{"k": random.randint(0, 2), "j": random.randint(0, 2), "v": v, "ts": t} for v, t in enumerate(times)]
        rows = [{**row, "ts": row["ts"] * stories.SECOND} for row in rows]
        streams.append(oracle.Stream(name, rows, 20 * stories.SECOND))
        for row, time in zip(rows, times, strict=True):
            epochs[time // 10].setdefault(name, []).append(row)
    delays = dict.fromkeys("ABC", 0)
    return Case(tuple(streams), (("A.k", "B.k"), ("B.k", "C.k")), delays, tuple(epochs), SCHEMA)


def live(folder: Path, random: Random, **options: Any) -> Counter[str]:
    """All epochs, with another declaration before most of them, and crashes; gives the kinds of changes there were."""
    case = some_case(random)
    text = f"SELECT {stories.select(case)} FROM {stories.from_clause(case)} WHERE {stories.equal(case.equalities)}"
    base = ({stream.name: stream.window_us for stream in case.streams}, case.equalities, [])
    with often_compacted():
        harness = harness_of(str(folder), case, {"base": text}, slots=random.randint(1, 4), **options)
        world = World(harness, case, random, {"base": (text, Life("base", base, 0, 0))}, [], Counter())
        for number, epoch in enumerate(case.epochs):
            if number and random.random() < 0.8:
                world.changed(number)
            rows = tables(case, epoch)
            if random.random() < 0.5:
                with_a_fault(harness, random.choice(stories.POINTS), number, rows)
                harness.restart(random.randint(1, 4))
            if harness.manifest.epoch < number:
                harness.epoch(rows)
        harness.finish()
        folders: dict[str, Counter[Any]] = {}
        for life in [*world.past, *(life for _, life in world.now.values())]:
            folders[life.folder] = folders.get(life.folder, Counter()) + life.rows(case)
        for name, wanted in folders.items():
            assert stories.found(harness, name) == wanted, name
        assert leftovers(harness) == []
    return world.kinds


SEEDS = [
    *range(4),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 16)),
    *(pytest.param(seed, marks=pytest.mark.acceptance) for seed in range(16, 60)),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_declarations_change_at_random_epochs(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    kinds = live(tmp_path, random, silence_us=random.choice([None, None, 0, 5 * stories.SECOND]))
    assert kinds["add"]


@pytest.mark.parametrize("seed", SEEDS)
def test_declarations_change_while_state_is_pushed(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    live(tmp_path, random, overflow=Overflow(random.choice([1, 1500, 4000]), spill_share=0.5), restless_spills=seed)
