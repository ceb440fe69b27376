"""A flow that is declared otherwise than its checkpoint was left: what changes, what is refused, and how it is done.

A start compares (`query.evolution`), shows, and does it on its way of prepare, commit and run. Nothing is changed
before everything was checked. Then, under the lease and with no epoch running:

1. what is owed to a query that ends, or goes on otherwise, is delivered under the old declaration (`settled`), from the
   text and sink that the manifest has of it;
2. an epoch that Spark has logged and that was never committed is going to be replayed under the new declaration. What a
   lost attempt delivered of it is replaced, as in every replay; in folders that nothing is delivered to any more it is
   deleted (`Launch.forget`), so that what is there ends with the last committed epoch;
3. the manifest of that epoch is replaced by one with the new declaration: the commit.

A crash before 3 leaves the old declaration, under which a start replays and delivers the epoch again; one after it the
new one. Streams may get columns that may be NULL, and nothing else: Spark knows sources by their order.

Invariant: the results of an epoch are those of the declaration in the manifest before it. Cost: the number of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from braidstream.epoch.owed import is_in_step
from braidstream.errors import CheckpointMismatch
from braidstream.model.declarations import Declared, Target, kept
from braidstream.model.faults import reach
from braidstream.model.secrets import kept_options, refuse_hidden
from braidstream.model.values import changed
from braidstream.plan.catalogue import held_queries, held_streams, with_declared
from braidstream.query import Query
from braidstream.query.evolution import Held, Step, added_columns, compare
from braidstream.spark.declared import BadTarget, ContinuousQuery
from braidstream.spark.launch import Launch, Prepared
from braidstream.spark.names import resolved
from braidstream.spark.sinks import Sink, sink_as_before
from braidstream.state.checkpoint import Identity
from braidstream.state.generations import pushed_stores
from braidstream.state.manifest import Manifest

_OTHERS = ("replace", "alter", "rename")
"""Steps after which results of an epoch that is done again may be other ones, or known by another name."""

__all__ = [
    "Begun",
    "Evolution",
    "bad_targets",
    "declared_of",
    "evolution",
    "held_before",
    "may_owe",
    "refuse_recognized",
    "with_failed",
]


@dataclass(frozen=True)
class Evolution:
    """What changes at a start."""

    held: Held
    declared: Mapping[str, Declared]
    streams: Mapping[str, Mapping[str, str]]
    bad: Mapping[str, Target]
    """By stream where rows go that cannot be read."""
    steps: tuple[Step, ...] = ()
    told: tuple[str, ...] = ()
    """What is said of streams, and of their outputs for bad rows."""
    expected: Identity | None = None
    """What a checkpoint that was made for something else belongs to."""

    @property
    def lines(self) -> tuple[str, ...]:
        """All that changes, a line each."""
        return (*self.told, *(step.line for step in self.steps))

    @property
    def ends(self) -> frozenset[str]:
        """The queries, by their old names, that from now on give nothing, or give it otherwise."""
        return frozenset(step.ends for step in self.steps if step.ends)

    def check(self, mine: Identity, shown: str) -> None:
        """Refuse streams that are others."""
        if self.expected is not None:
            self.expected.check(mine, shown)

    def noted(self, manifest: Manifest) -> Manifest:
        """The manifest with the change, effective after its epoch."""
        return with_declared(manifest, self.declared, self.steps, self.streams, self.bad)


@dataclass(frozen=True)
class Begun:
    """A start that was checked: what it writes first, and runs then."""

    launch: Launch
    prepared: Prepared
    manifest: Manifest
    identity: Identity
    is_new: bool
    """Whether the checkpoint is made, or made anew because nothing was ever committed to it."""
    warnings: tuple[str, ...]
    changes: Evolution
    held: Mapping[str, ContinuousQuery]
    """What ran until now, if something may be owed to it."""

    def committed(self) -> tuple[Prepared, Manifest]:
        """Write what runs from now on; if that is something else than until now, after what is owed to the latter."""
        launch, prepared, changes, last = self.launch, self.prepared, self.changes, self.manifest
        if not changes.lines:
            return prepared, launch.commit(prepared, changes.noted(last))
        reach("change-prepared")
        if self.held:
            last = launch.settled(self.held, last, changes.ends)
            prepared = launch.planned(prepared.queries, changes.noted(last))
        launch.forget(prepared, last)
        reach("change-settled")
        committed = launch.commit(prepared, changes.noted(last))
        reach("change-committed")
        return prepared, committed


def evolution(
    known: Identity,
    last: Manifest,
    mine: Identity,
    declared: Mapping[str, Declared],
    bad: Mapping[str, Target],
    parsed: Callable[[str, str], Query],
) -> Evolution:
    """What changes from what a checkpoint holds to what is declared now."""
    streams, told = dict(held_streams(known, last)), []
    for name, one in mine.streams.items():
        before = streams.get(name, {})
        more = added_columns(before.get("schema", ""), one["schema"]) if before.get("time") == one["time"] else None
        if more:
            columns = f"{'a column' if len(more) == 1 else 'columns'} more: {', '.join(more)}"
            told.append(f"stream {name!r} has {columns}; for queries that come later, older rows have NULL there")
        if more is not None:
            streams[name] = one
    told += _told_of_bad(last, bad)
    held = _with_bad(held_queries(known, last, parsed), last, declared)
    is_other = streams != dict(mine.streams)
    expected = replace(known, streams=streams, queries=mine.queries) if is_other else None
    steps = () if is_other else compare(held, declared, parsed, last.epoch)
    return Evolution(held, declared, mine.streams, bad, steps, tuple(told), expected)


def _told_of_bad(last: Manifest, now: Mapping[str, Target]) -> Iterator[str]:
    """The outputs for rows that cannot be read that are others; the way of a stream that gets its first one is told."""
    for name, then in (last.notes.bad or {}).items():
        mine = now.get(name)
        if kept(then) != kept(mine):
            goes = "have no output" if mine is None else f"go to {mine}"
            yield f"rows of stream {name!r} that cannot be read {goes} after epoch {last.epoch}, until then to {then}"


def _with_bad(held: Held, last: Manifest, declared: Mapping[str, Declared]) -> Held:
    """Of what was written before outputs for bad rows were noted, they are taken to be what they are now."""
    if last.notes.bad is not None:
        return held
    then = {n: changed(one, bad=declared[n].bad) if n in declared else one for n, one in held.then.items()}
    return replace(held, then=then)


def bad_targets(bad: Mapping[str, BadTarget]) -> dict[str, Target]:
    """The outputs for bad rows in a form that can be written down."""
    return {name: _noted(of) for name, of in bad.items()}


def _noted(of: BadTarget) -> Target:
    made = _target(*of)
    return Target(made.to, made.path, kept_options(made.options))


def declared_of(query: ContinuousQuery) -> Declared:
    """A query as it is declared, in a form that can be written down."""
    late, bad = query.late_sink, query.failed
    return Declared(
        query.query.fingerprint,
        query.query.text,
        None if query.sink is None else query.sink.noted,
        None if late is None else _noted(late),
        query.recovered,
        bad=None if bad is None else _noted(bad.of),
    )


def _target(to: Any, path: Any, options: Mapping[str, str]) -> Target:
    """Where late tuples go: a folder for each stream below a path."""
    return Target(to.lower() if isinstance(to, str) else None, None if path is None else resolved(str(path)), options)


def may_owe(manifest: Manifest) -> bool:
    """Whether results may be missing that tuples from before the manifest give: of pushed state, or suspended joins."""
    return bool(manifest.notes.suspended or is_in_step(manifest) or pushed_stores(manifest))


def _has_other_marks(found: Evolution, name: str) -> bool:
    """Whether the marks of a query's results, late tuples, or rows that fail, were elsewhere until now."""
    before, after = {**found.held.then, **found.held.submitted}.get(name), found.declared.get(name)
    if before is None or after is None:
        return False
    both = ((before.sink, after.sink), (before.late, after.late), (before.bad, after.bad))
    return any(_are_elsewhere(*one) for one in both)


def _are_elsewhere(before: Target | None, after: Target | None) -> bool:
    if before is None or after is None or before.to != after.to:
        return False
    return before.options.get("marks") != after.options.get("marks")


def held_before(
    found: Evolution,
    manifest: Manifest,
    parsed: Callable[[str, str], Query],
    now: Mapping[str, ContinuousQuery],
    shown: str,
) -> dict[str, ContinuousQuery]:
    """The queries that a checkpoint ran until now, with their sinks, as far as the manifest has them.

    Late tuples are owed to nobody. What only the program has, a function or a memory, is that of the query as it is
    declared `now`, if it is the same query and delivers there as before.
    """
    running: dict[str, ContinuousQuery] = {}
    called = {step.before: step.name for step in found.steps if step.before}
    for name, one in found.held.then.items():
        if name not in found.held.withdrawn and name not in found.held.submitted:
            target, mine = one.sink if one.text else None, now.get(called.get(name, name))
            sink = _as_now(one.fingerprint, target, mine) or _made(target, name, shown)
            query = parsed(one.text, name)
            running[name] = ContinuousQuery(query, sink, one.since, recovered=one.recovered)
    for name, entry in manifest.notes.submitted.items():
        query, target = parsed(entry.text, name), Target(entry.to, entry.path, entry.options)
        sink = _as_now(query.fingerprint, target, now.get(name)) or _made(target, name, shown)
        running[name] = ContinuousQuery(query, sink, entry.since)
    return running


def _as_now(fingerprint: str, target: Target | None, mine: ContinuousQuery | None) -> Sink | None:
    """The sink of a query as it is declared now, where no other is that sink; None where the query is another one."""
    if mine is None or mine.sink is None or target is None or target.to not in (None, "memory"):
        return None
    return mine.sink if mine.query.fingerprint == fingerprint and mine.sink.noted == target else None


def with_failed(
    held: Mapping[str, ContinuousQuery],
    found: Evolution,
    now: Mapping[str, ContinuousQuery],
    attempted: Callable[[Query], Collection[str]],
    shown: str,
) -> dict[str, ContinuousQuery]:
    """The queries that ran until now with their outputs for rows on which an expression fails: `attempted` of theirs.

    These are where they were. A query that had none has the one of now, if there is one: it may have stopped without.
    """
    called = {step.before: step.name for step in found.steps if step.before}
    made = dict[str, ContinuousQuery]()
    for name, query in held.items():
        then = None if name in found.held.submitted else found.held.then.get(name)
        mine = now.get(called.get(name, name))
        of = _failed_until_now(None if then is None else then.bad, mine, name, shown)
        own = replace(query, failing=partial(attempted, query.query))
        made[name] = query if of is None else own.bad(of[0], of[1], **of[2])
    return made


def _failed_until_now(then: Target | None, now: ContinuousQuery | None, name: str, shown: str) -> BadTarget | None:
    mine = None if now is None or now.failed is None else now.failed.of
    if then is None or (mine is not None and (then.to is None or _noted(mine) == kept(then))):
        return mine
    refuse_hidden(then.options, f"the output for bad rows of query {name!r}, which is owed results")
    return _known(then, name, shown), then.path, then.options


def _made(target: Target | None, name: str, shown: str) -> Sink:
    refuse_hidden({} if target is None else target.options, f"the sink of query {name!r}, which is owed results")
    return sink_as_before(
        _known(target, name, shown), target.path if target else None, target.options if target else {}
    )


def _known(target: Target | None, name: str, shown: str) -> str:
    """Results that are owed can be delivered only to a sink that is written down."""
    if target is None or target.to is None:
        what = "went to a function" if target is not None else "was declared by an earlier version"
        raise CheckpointMismatch(
            f"the checkpoint {shown} owes results to query {name!r}, which {what}",
            "its old declaration, until they are delivered",
            "start once as it was declared, until what is there is read, and change it then",
        )
    return target.to


def refuse_recognized(
    found: Evolution,
    queries: Mapping[str, ContinuousQuery],
    last: Manifest,
    shown: str,
    *,
    is_begun: bool,
    is_settled: bool,
) -> None:
    """Refuse to do again what was begun, an epoch or a clean-up, into a table that may have it, and would not know it.

    It would not from another query, nor where marks are looked for elsewhere. `is_begun` says whether an
    epoch was, `is_settled` whether a clean-up is ended under what was declared until now.
    """
    if is_begun:
        begun = f"epoch {last.epoch + 1}"
    elif is_in_step(last) and not is_settled:
        begun = f"a clean-up after epoch {last.epoch}"
    else:
        return
    unknown = [*_unknown(found, queries), *_unknown_bad(last, found.bad)]
    if unknown:
        raise CheckpointMismatch(
            f"{begun} of the checkpoint {shown} was begun, and its results may be in the table of {unknown[0]} already",
            "the old declaration until it is done",
            "start once as it was declared, and change it then; or send the new query elsewhere",
        )


def _unknown(found: Evolution, queries: Mapping[str, ContinuousQuery]) -> Iterator[str]:
    """The queries whose tables would not know again what they may have."""
    for step in found.steps:
        query = queries.get(step.name)
        is_other = query is not None and any(one.recognizes for one in query.answers) and step.kind in _OTHERS
        if is_other or _has_other_marks(found, step.name):
            yield f"query {step.name!r}"


def _unknown_bad(last: Manifest, now: Mapping[str, Target]) -> Iterator[str]:
    """The streams of which that is so of rows that cannot be read."""
    for name, then in (last.notes.bad or {}).items():
        if _are_elsewhere(then, now.get(name)):
            yield f"stream {name!r}, bad rows"
