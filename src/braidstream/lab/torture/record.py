"""Many stories, one after the other: what went wrong, and what was met in all of them.

    record = torture(range(1000), tell=print)
    record.failures, record.met

Cost: see `playing`.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from braidstream.lab.torture.asking import statement
from braidstream.lab.torture.drawing import draw_story
from braidstream.lab.torture.playing import Outcome, play
from braidstream.lab.torture.reference import Reference
from braidstream.lab.torture.shrinking import shrink
from braidstream.lab.torture.story import Story

__all__ = ["Failure", "Player", "Record", "described", "drawn", "torture"]

Player = Callable[[Story, Path], Outcome]
MOST_RESULTS = 30_000


@dataclass(frozen=True)
class Failure:
    """A story that ended wrong, and the smallest of it that was found."""

    seed: int
    wrong: str
    story: Story
    smallest_wrong: str


@dataclass
class Record:
    """What many stories gave."""

    runs: int = 0
    failures: list[Failure] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    slowest: tuple[float, int] = (0.0, -1)
    """Of a run, with its seed."""

    def as_json(self) -> dict[str, Any]:
        """Counts by what was met, and what went wrong."""
        return {
            "runs": self.runs,
            "differences": len(self.failures),
            "seconds": round(self.seconds, 1),
            "slowest": {"seconds": round(self.slowest[0], 1), "seed": self.slowest[1]},
            "met": dict(sorted(self.met.items())),
            "failures": [
                {
                    "seed": f.seed,
                    "wrong": f.wrong,
                    "smallest_wrong": f.smallest_wrong,
                    "story": msgspec.to_builtins(f.story),
                }
                for f in self.failures
            ],
        }


def drawn(seed: int) -> Story:
    """The story of a seed, with no more results than can be compared quickly."""
    for size in (1.0, 0.5, 0.25, 0.1):
        story = draw_story(seed, size)
        reference = Reference(story)
        try:
            if reference.n_results(MOST_RESULTS) < MOST_RESULTS:
                return story
        finally:
            reference.close()
    return story


def torture(
    seeds: Iterable[int],
    player: Player = play,
    tell: Callable[[int, Outcome, float], None] | None = None,
    shrink_s: float = 60.0,
) -> Record:
    """Play the stories of seeds; those that end wrong are made smaller, for at most so many seconds each."""
    record = Record()
    began = time.perf_counter()
    for seed in seeds:
        record.runs += 1
        started = time.perf_counter()
        outcome = _played(drawn(seed), player)
        took = time.perf_counter() - started
        record.slowest = max(record.slowest, (took, seed))
        record.met += outcome.met
        if outcome.wrong:
            record.failures.append(_failure(seed, outcome.wrong, player, shrink_s))
        record.seconds = time.perf_counter() - began
        if tell is not None:
            tell(seed, outcome, took)
    return record


def _failure(seed: int, wrong: str, player: Player, shrink_s: float) -> Failure:
    story = drawn(seed)
    if shrink_s > 0:
        story = shrink(story, lambda smaller: bool(_played(smaller, player).wrong), shrink_s)
    return Failure(seed, wrong, story, _played(story, player).wrong)


def _played(story: Story, player: Player) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="braidstream-torture-"))
    try:
        return player(story, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def described(story: Story) -> str:
    """A story in lines for people."""
    options = (
        ", ".join(f"{name} {value}" for name, value in msgspec.to_builtins(story.options).items()) or "as they are"
    )
    lines = [f"{len(story.epochs)} epochs, {story.n_rows} rows, keys {story.key}, delays {story.delays_us}"]
    lines += [f"options: {options}", *(statement(ask) for ask in story.asks)]
    lines += [f"event: {msgspec.to_builtins(event)}" for event in story.events]
    if story.n_rows <= 40:
        lines += [f"epoch {n}: {rows}" for n, rows in enumerate(story.epochs)]
    return "\n".join(lines)
