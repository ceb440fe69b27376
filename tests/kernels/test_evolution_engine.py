"""Declarations that change between epochs, on the engine without Spark: every folder has what it should, to the row."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.lab.testing.queries import QueryHarness
from braidstream.lab.testing.strategies import Case, many_streams
from tests.backends import tables
from tests.kernels import stories
from tests.kernels.test_queries_engine import SILENCES, SLOTS, SOME, TEMPLATES, harness_of, seen_by
from tests.kernels.test_spilled_join import SPILLS
from tests.kernels.test_streams_join import leftovers, often_compacted, with_a_fault


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
    data: st.DataObject
    now: dict[str, tuple[str, Life]]
    past: list[Life]
    n_names: int = 0

    def fresh(self, stem: str) -> str:
        self.n_names += 1
        return f"{stem}{self.n_names}"

    def query(self, like: Any = None) -> tuple[str, Any]:
        """Some query, or one that has the streams and keys of another, other conditions and shorter windows."""
        draw = self.data.draw
        if like is None:
            names, equalities = TEMPLATES[draw(st.sampled_from(sorted(TEMPLATES)), label="template")]
            windows = {name: draw(st.none() | st.integers(0, 25), label="window") for name in names}
            windows = {name: None if w is None else w * stories.SECOND for name, w in windows.items()}
        else:
            windows, equalities, _ = like
            shorter = draw(st.booleans(), label="shorter")
            windows = {name: w and max(w - shorter * stories.SECOND, 0) for name, w in windows.items()}
        where, checks = stories.predicates(draw, list(windows))
        outputs = ", ".join(f"{name}.v AS {name}v, {name}.k AS {name}k" for name in windows)
        clause = stories.from_clause(self.case, windows)
        text = f"SELECT {outputs} FROM {clause} WHERE {stories.equal(equalities)}{where}"
        return text, (windows, equalities, checks)

    def changed(self, number: int) -> None:
        """Some queries more, fewer, called otherwise, or others under their names."""
        draw, wanted, texts = self.data.draw, dict(self.now), {}
        for name in [name for name in self.now if name != "base"]:
            how = draw(st.sampled_from(["stay", "stay", "go", "rename", "alter", "replace"]), label=name)
            text, life = wanted.pop(name)
            if how in ("alter", "replace"):
                text, template = self.query(life.template if how == "alter" else None)
                texts[name] = (text, replace(life, template=template))
            elif how != "go":
                texts[self.fresh("a") if how == "rename" else name] = (text, life)
        if draw(st.booleans(), label="add"):
            text, template = self.query()
            name = self.fresh("q")
            texts[name] = (text, Life(f"out of {name}", template, number, number))
        texts["base"] = self.now["base"]
        declared = {name: (text, life.folder) for name, (text, life) in texts.items()}
        steps = self.harness.evolve(declared)
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


def live(case: Case, slots: int, data: st.DataObject, **options: Any) -> None:
    case = replace(case, equalities=(("A.k", "B.k"), ("B.k", "C.k")))
    text = f"SELECT {stories.select(case)} FROM {stories.from_clause(case)} WHERE {stories.equal(case.equalities)}"
    base = ({stream.name: stream.window_us for stream in case.streams}, case.equalities, [])
    with TemporaryDirectory() as folder, often_compacted():
        harness = harness_of(folder, case, {"base": text}, slots=slots, **options)
        world = World(harness, case, data, {"base": (text, Life("base", base, 0, 0))}, [])
        for number, epoch in enumerate(case.epochs):
            if number and data.draw(st.booleans(), label="change"):
                world.changed(number)
            rows = tables(case, epoch)
            if data.draw(st.booleans(), label="crash"):
                with_a_fault(harness, data.draw(st.sampled_from(stories.POINTS)), number, rows)
                harness.restart(data.draw(SLOTS, label="slots"))
            if harness.manifest.epoch < number:
                harness.epoch(rows)
        harness.finish()
        folders: dict[str, Counter[Any]] = {}
        for life in [*world.past, *(life for _, life in world.now.values())]:
            folders[life.folder] = folders.get(life.folder, Counter()) + life.rows(case)
        for name, wanted in folders.items():
            assert stories.found(harness, name) == wanted, name
        assert leftovers(harness) == []


CASES = many_streams(min_streams=3, max_streams=3, max_rows=8, max_epochs=7)


@settings(SOME, max_examples=40)
@given(CASES, SLOTS, st.data())
def test_declarations_change_at_random_epochs(case: Case, slots: int, data: st.DataObject) -> None:
    live(case, slots, data, silence_us=data.draw(SILENCES, label="silence"))


@settings(SOME, max_examples=30)
@given(CASES, SLOTS, SPILLS, st.data())
def test_declarations_change_while_state_is_pushed(
    case: Case, slots: int, spills: dict[str, Any], data: st.DataObject
) -> None:
    live(case, slots, data, **spills)
