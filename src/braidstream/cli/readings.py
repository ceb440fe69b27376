"""What a view reads off an epoch, whatever kind of flow it is of: joins speak of matches, functions of results.

A view knows only these words; a new kind of progress is a new case of `reading`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard, cast

from braidstream.cli import words

if TYPE_CHECKING:
    from braidstream.epoch.progress import EpochProgress
    from braidstream.functions.function_progress import FunctionProgress

__all__ = ["Reading", "reading"]


@dataclass(frozen=True)
class Reading:
    """One epoch, as it is shown."""

    results: Mapping[str, int]
    """Matches by query, or results by plan."""
    word: tuple[str, str]
    """What one and several of them are called."""
    state: tuple[tuple[str, float, str, str], ...]
    """Measures of the state: name, value for the course of it, as shown beside the name, and in a line without it."""
    spread: tuple[str, str, str]
    """Over what the work is spread: a name, how many, and a remark."""
    title: str
    """Which epoch it is, or which step of a last clean-up."""
    more: tuple[tuple[str, str, str], ...] = ()
    """What this epoch has and others have not, in the form of `spread`."""

    @property
    def n_results(self) -> int:
        """All results of the epoch."""
        return sum(self.results.values())

    @property
    def state_shown(self) -> str:
        """The state in a line."""
        return ", ".join(shown for *_, shown in self.state)


def reading(entry: EpochProgress | FunctionProgress) -> Reading:
    """What a view shows of an epoch."""
    return _of_function(entry) if _is_of_function(entry) else _of_join(cast("EpochProgress", entry))


def _is_of_function(entry: EpochProgress | FunctionProgress) -> TypeGuard[FunctionProgress]:
    """By what it has, not by its class: that would bring Spark along."""
    return hasattr(entry, "nodes")


def _of_join(entry: EpochProgress) -> Reading:
    rows, size = entry.state_rows, words.size(entry.state_bytes)
    staged = f" in {len(entry.stages)} stages" if len(entry.stages) > 1 else ""
    kept = f"{words.count(entry.groups, 'group')}{staged}, {words.count(entry.segments, 'segment')}"
    state = (
        ("state rows", float(rows), words.number(rows), words.count(rows, "row")),
        ("state size", float(entry.state_bytes), size, size),
    )
    title = f"clean-up {entry.step}" if entry.step else f"epoch {entry.epoch}"
    more = (*_pushed(entry), *_shed(entry), *_spread(entry))
    return Reading(entry.matches, ("match", "matches"), state, ("slots", str(entry.slots), kept), title, more)


def _pushed(entry: EpochProgress) -> Iterator[tuple[str, str, str]]:
    """State that waits for clean-up, and results that came of one."""
    if entry.spilled_groups:
        size = words.size(entry.inactive_bytes)
        yield "groups pushed", words.number(entry.spilled_groups), f"{size} to be cleaned up"
    if recovered := sum(entry.recovered.values()):
        yield "recovered", words.number(recovered), words.each(entry.recovered)


def _shed(entry: EpochProgress) -> Iterator[tuple[str, str, str]]:
    """What was dropped, and how complete the answers are since the start."""
    if entry.shed_bytes:
        yield "shed", words.size(entry.shed_bytes), "dropped, by `on_overflow`"
    for query, of in sorted(entry.completeness_so_far.items()):
        if of.low < 1:
            yield "complete", f"{of.estimate:.1%}", f"{query} {of}"


def _spread(entry: EpochProgress) -> Iterator[tuple[str, str, str]]:
    if entry.heavy:
        yield "heavy keys", words.number(len(entry.heavy)), _heavy(entry)


def _heavy(entry: EpochProgress) -> str:
    """The most frequent heavy keys with their shares and grids, and how even the slots' matches are."""
    keys = ", ".join(f"{one.key} ({one.share:.0%}, {one.shape})" for one in entry.heavy[:3])
    more = f" and {len(entry.heavy) - 3} more" if len(entry.heavy) > 3 else ""
    return f"{keys}{more}; largest over mean of slots {entry.balance['matches']:.2f} in matches"


def _of_function(entry: FunctionProgress) -> Reading:
    waiting, size = words.count(entry.waiting, "window"), words.size(entry.state_bytes)
    state = (
        ("waiting", float(entry.waiting), waiting, f"{waiting} waiting"),
        ("state size", float(entry.state_bytes), size, size),
    )
    missing = f"; {words.count(entry.given_up, 'window')} given up" if entry.given_up else ""
    slow = f"; slow: {', '.join(entry.slow)}" if entry.slow else ""
    spread = ("nodes", str(len(entry.nodes)), f"plan {entry.plan}{missing}{slow}")
    return Reading({entry.plan: entry.results}, ("result", "results"), state, spread, f"epoch {entry.epoch}")
