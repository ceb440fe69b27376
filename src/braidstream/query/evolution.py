"""What changes when a flow is declared otherwise than its checkpoint was left: query by query, in words.

`compare` takes what was declared when the checkpoint was last started (`then`), what is declared `now`, and what came
and went while the flow ran, and gives the steps from the one to the other. What was submitted or withdrawn while it ran
stays so: only what the declaration itself says otherwise is a change.

- A query that is new is *added*: it sees what arrives from the next epoch on. One that is gone is *withdrawn*.
- The same query under another name, with the same sink, is *renamed*: state and sink stay.
- Another query under the same name is *altered* where the state that was kept for the old one has all that the new one
  needs (`lack` says what it has not): from the next epoch on it has other outputs or conditions. Else it is *replaced*:
  the old one ends, the new one is added, because its results over older rows would be wrong.
- The same query with another sink, or other columns about results, is *redirected*: its state stays.

Invariant: a query that keeps its state reads, of rows that arrived since it was added, only columns that were stored
with each of them, within a window for which each was kept. Pure. Cost: the number of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from braidstream.errors import InputError
from braidstream.model.declarations import Declared
from braidstream.model.join_kinds import JoinKind
from braidstream.query.duration import describe_duration
from braidstream.query.model import Input, Query
from braidstream.query.types import canonical_type, field_names, field_type

__all__ = ["Held", "Step", "added_columns", "compare", "lack"]

Kind = Literal["add", "withdraw", "rename", "alter", "replace", "redirect"]


@dataclass(frozen=True)
class Step:
    """One change, and what to say of it."""

    kind: Kind
    name: str
    line: str
    before: str = ""
    """Its name until now, if that is another."""

    @property
    def ends(self) -> str:
        """The query, by the name it had, that from now on gives nothing or gives it otherwise; empty: none."""
        return "" if self.kind in ("add", "rename") else self.name

    @property
    def begins(self) -> bool:
        """Whether a query begins anew."""
        return self.kind in ("add", "replace")


@dataclass(frozen=True)
class Held:
    """What a checkpoint holds: what was declared, and what came and went while its flow ran."""

    then: Mapping[str, Declared]
    submitted: Mapping[str, Declared] = field(default_factory=dict)
    withdrawn: Collection[str] = ()
    first: Mapping[str, str] = field(default_factory=dict)
    """The fingerprints of the first declaration: a program that still has it says nothing new of what came and went."""

    def has_said(self, name: str, mine: Declared) -> bool:
        """Whether a query was declared just so before what has come and gone."""
        return self.first.get(name) == mine.fingerprint or (name in self.then and mine.is_same(self.then[name]))


def compare(
    held: Held, now: Mapping[str, Declared], parsed: Callable[[str, str], Query], epoch: int
) -> tuple[Step, ...]:
    """The steps from what a checkpoint holds after an epoch to what is declared now. `parsed` reads a text."""
    then, passing = held.then, {*held.withdrawn, *held.submitted}
    gone = [name for name in then if name not in now and name not in passing]
    steps: list[Step] = []
    for name, mine in now.items():
        if name in passing:
            steps += _passing(held, name, mine, epoch)
        elif name in then:
            steps += _changed(name, then[name], mine, parsed, epoch)
        elif (old := next((o for o in gone if _is_renamed(then[o], mine)), None)) is not None:
            gone.remove(old)
            told = f"query {old!r} is called {name!r} now: its state and its sink stay"
            steps.append(Step("rename", name, told, old))
        else:
            steps.append(_added(name, epoch))
    told = "is withdrawn: its results end with epoch"
    return (*(Step("withdraw", name, f"query {name!r} {told} {epoch}") for name in gone), *steps)


def _passing(held: Held, name: str, mine: Declared, epoch: int) -> list[Step]:
    """A query under a name that came or went while the flow ran: a change only if it was never declared so."""
    if held.has_said(name, mine):
        return []
    if name not in held.submitted:
        return [_added(name, epoch)]
    if mine.is_same(held.submitted[name]):
        return []
    return [_replaced(name, "it was submitted while the flow ran as another one", epoch)]


def _is_renamed(old: Declared, mine: Declared) -> bool:
    return mine.is_same(old) and not mine.goes_elsewhere(old)


def _added(name: str, epoch: int) -> Step:
    return Step("add", name, f"query {name!r} is added: it sees what arrives after epoch {epoch}")


def _changed(name: str, then: Declared, mine: Declared, parsed: Callable[[str, str], Query], epoch: int) -> list[Step]:
    if not mine.is_same(then):
        reason = _reason(name, then, mine, parsed)
        if reason:
            return [_replaced(name, reason, epoch)]
        told = f"query {name!r} has other outputs or conditions after epoch {epoch}: its state has all that it needs"
        return [Step("alter", name, told)]
    if mine.goes_elsewhere(then):
        where = f" to {mine.sink}" if mine.sink != then.sink else ""
        told = f"query {name!r} delivers{where} after epoch {epoch}{'' if where else ' as it is declared now'}"
        until = f", until then to {then.sink}" if where else ""
        return [Step("redirect", name, f"{told}{until}; its state stays")]
    return []


def _reason(name: str, then: Declared, mine: Declared, parsed: Callable[[str, str], Query]) -> str:
    """Why a query cannot go on with the state of another; empty where it can."""
    if not then.text:
        return "its text was not kept"
    try:
        old = parsed(then.text, name)
    except InputError:  # streams stay, but tables may go
        return "what it read until now is not declared any more"
    return lack(old, parsed(mine.text, name))


def _replaced(name: str, reason: str, epoch: int) -> Step:
    told = (
        f"query {name!r} is another one now ({reason}): the old one ends with epoch {epoch}, the new one begins there"
    )
    return Step("replace", name, f"{told} and sees what arrives after it")


def lack(old: Query, new: Query) -> str:
    """What the state that was kept for one query has not, and another needs; empty if nothing."""
    if old.is_aggregate or new.is_aggregate:
        return "what an aggregate keeps is made for its text"
    if (old.kind, old.tops, _conditions(old)) != (new.kind, new.tops, _conditions(new)):
        return (
            f"it is a {new.kind.words} with other conditions on a match" if old.kind is new.kind else _kinds(old, new)
        )
    if [(e.alias, e.stream) for e in old.inputs] != [(e.alias, e.stream) for e in new.inputs]:
        return f"it reads {_read(new)}; until now {_read(old)}"
    if _keys(old) != _keys(new):
        return "it joins on other keys"
    is_staged = old.type == 2 or old.kind is not JoinKind.INNER  # which rows were closed follows from the windows
    if is_staged and old.gaps != new.gaps:
        what = "intermediate results were kept for" if old.type == 2 else "which rows had a match followed from"
        return f"it joins other times: {what} those until now"
    found = (_lacking(a, b, is_staged=is_staged) for a, b in zip(old.inputs, new.inputs, strict=True))
    return next((reason for reason in found if reason), "")


def _conditions(query: Query) -> list[str]:
    """What decides a match in the engine: the columns of these are stored with the rows."""
    return sorted(map(repr, (*query.on, *query.bands)))


def _kinds(old: Query, new: Query) -> str:
    return f"it is a {new.kind.words}; until now a {old.kind.words}"


def _lacking(old: Input, new: Input, *, is_staged: bool) -> str:
    if old.filter != new.filter or old.match != new.match:
        return f"the condition on {new.alias} is another: which stored rows pass it is not known"
    longest, wanted = old.window_us, new.window_us
    if longest != wanted and (is_staged or (longest is not None and (wanted is None or wanted > longest))):
        shown = "unbounded" if wanted is None else describe_duration(wanted)
        kept = "for ever" if longest is None else f"for {describe_duration(longest)}"
        return f"the window of {new.alias} is {shown}, rows were kept {kept}"
    missing = [name for name in new.columns if name not in old.columns]
    return f"{new.alias}.{missing[0]} was not stored" if missing else ""


def _read(query: Query) -> str:
    return ", ".join(e.stream if e.alias == e.stream else f"{e.stream} {e.alias}" for e in query.inputs)


def _keys(query: Query) -> tuple[list[str], list[str]]:
    return sorted(map(repr, query.key_classes)), sorted(map(repr, query.join_edges))


def added_columns(then: str, now: str) -> list[str] | None:
    """The columns that a schema (as `struct<...>`) has and the one before had not; None if it differs otherwise."""
    before, after = _columns(then), _columns(now)
    if before is None or after is None or any(after.get(name) != kind for name, kind in before.items()):
        return None
    return [f"{name} {kind}" for name, kind in after.items() if name not in before]


def _columns(struct: str) -> dict[str, str] | None:
    try:
        known = canonical_type(struct)
        kinds = {name: field_type(known, [name]) for name in field_names(known)}
    except Exception:  # a type that only Spark knows
        return None
    return None if not kinds or None in kinds.values() else {name: kind for name, kind in kinds.items() if kind}
