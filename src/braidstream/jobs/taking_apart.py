"""A job with functions and queries, as the parts that it runs as: each is a job that has only one of both.

    ck/parts.json             the names of the parts, in their order
    ck/0-functions-spectra    the checkpoint of the functions that begin with `spectra`
    ck/1-queries              that of the queries that read results of them
    ck/feeds/spectra          what leads from one to the other (`spark.feeds`)

A query reads the results of a function by its name, as a stream; a function names a query for its stream. The number of
a part says how many times results pass from one kind to the other before it. Results that are read so go to a folder of
Parquet files: the entry's own sink if it is one, else one beside the feed.

Invariant: a part needs only parts before it, so that they can be started, and run to their ends, in this order. A job
with one kind has one part: itself. Pure, but for reading names out of queries. Cost: milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from braidstream.errors import InputError, JobError
from braidstream.functions.jobfile import JobFunction, in_order
from braidstream.jobs.form import FEEDS, Feed, Job, with_place
from braidstream.options import JobQuery, JobSink

__all__ = ["is_mixed", "parts_of"]

_NONE = ("noop",)


def is_mixed(job: Job) -> bool:
    """Whether a job has both functions and queries."""
    return bool(job.functions and job.queries)


def parts_of(job: Job) -> tuple[Job, ...]:
    """The job itself, or its parts in the order in which they need one another."""
    if not is_mixed(job):
        return (job,)
    _refuse_whole(job)
    graph = _Graph(job)
    depths = {name: graph.depth(name) for name in (*job.functions, *job.queries)}
    found: list[Job] = []
    for depth in sorted(set(depths.values())):
        functions = {name: one for name, one in job.functions.items() if depths[name] == depth}
        found += [graph.functions(depth, root, functions) for root in functions if graph.is_first(root)]
        if queries := [name for name in job.queries if depths[name] == depth]:
            found.append(graph.queries(depth, queries))
    _refuse_several_readers(job, found)
    return tuple(found)


def _refuse_whole(job: Job) -> None:
    """What can be said only of a flow that has one part, or of no checkpoint of several."""
    if "://" in job.flow.checkpoint:
        wrong = f"{job.file}: [flow] checkpoint is {job.flow.checkpoint!r}, and the job has functions and queries"
        raise JobError(wrong, "a folder that this machine and the workers share", "write a job file for each of both")
    if job.flow.final:
        wrong = f"{job.file}: [flow] final with functions and queries"
        raise JobError(wrong, "final for queries alone", "leave it out: functions have no end")
    both = next((name for name in job.queries if name in {*job.functions, *job.streams}), None)
    if both is not None:
        what = "function" if both in job.functions else "stream"
        wrong = f"{job.file}: {both} is a query and a {what}"
        raise JobError(wrong, "a name of its own for each", "rename one of them")


def _refuse_several_readers(job: Job, parts: Sequence[Job]) -> None:
    """Each part is a flow that would deliver the rows of a stream that cannot be read."""
    for name, stream in job.streams.items():
        readers = [part.flow.checkpoint.rpartition("/")[2] for part in parts if name in part.streams]
        if stream.bad is not None and len(readers) > 1:
            wrong = f"{job.file}: [streams.{name}] bad: {' and '.join(readers)} read {name}, each a flow of its own"
            fix = "declare the stream once more, under another name and with another output, for one of them"
            raise JobError(wrong, "one flow that delivers to it", fix)


@dataclass
class _Graph:
    """Who takes whose results."""

    job: Job
    _depths: dict[str, int] = field(default_factory=dict)
    _on_the_way: list[str] = field(default_factory=list)
    _read: dict[str, frozenset[str]] = field(default_factory=dict)

    def depth(self, name: str) -> int:
        """How often results pass from one kind to the other before it; refused where that never begins."""
        if name in self._on_the_way:
            around = " takes ".join([*self._on_the_way[self._on_the_way.index(name) :], name])
            raise JobError(f"{self.job.file}: {around}", "results that lead from streams on", "name a stream instead")
        if name not in self._depths:
            self._on_the_way.append(name)
            self._depths[name] = self._found(name)
            self._on_the_way.pop()
        return self._depths[name]

    def _found(self, name: str) -> int:
        job = self.job
        if name in job.queries:
            return max((self.depth(one) + 1 for one in self.taken(name)), default=0)
        before = job.functions[name].stream
        if before in job.streams:
            return 0
        return self.depth(before) + (before in job.queries)

    def read(self, query: str) -> frozenset[str]:
        """What a query names."""
        if query not in self._read:
            from braidstream.query.cql import relation_names  # noqa: PLC0415  (slow to import, for one of both kinds)

            text = self.job.queries[query].cql
            self._read[query] = with_place(self.job, f"[queries.{query}] cql", partial(relation_names, text))
        return self._read[query]

    def taken(self, query: str) -> list[str]:
        """The functions whose results a query reads; a stream of the same name comes first."""
        job = self.job
        folded = {name.lower(): name for name in (*job.functions, *job.tables, *job.streams)}
        found = {name if name in job.functions else folded.get(name.lower()) for name in self.read(query)}
        return [name for name in job.functions if name in found and name not in job.streams]

    def is_first(self, function: str) -> bool:
        """Whether it takes the results of no other function."""
        return self.job.functions[function].stream not in self.job.functions.keys() - self.job.streams.keys()

    def functions(self, depth: int, root: str, others: Mapping[str, JobFunction]) -> Job:
        """The part of the functions that begin with one."""
        job, first = self.job, self.job.functions[root]
        chain, last = {root: first}, {root}
        while last := {name for name, one in others.items() if one.stream in last - set(job.streams)} - set(chain):
            chain.update({name: others[name] for name in last})
        try:
            ordered = in_order(chain, {*job.streams, *job.queries})
        except InputError as error:
            raise JobError(f"{job.file}: [functions] {error.wrong}", error.expected, error.fix) from None
        feeds = {}
        if first.stream not in job.streams:
            feeds = {first.stream: self._query_feed(root, first)}
        sunk = {name: replace(one, sink=self._sink("functions", name, one.sink)) for name, one in ordered.items()}
        names = [name for name in (first.stream, *first.beside) if name in job.streams]
        return self._part(f"{depth}-functions-{root}", names, feeds, functions=sunk)

    def _query_feed(self, function: str, entry: JobFunction) -> Feed:
        at = f"{self.job.file}: [functions.{function}]"
        for option, example in (("time", 'time = "ts"'), ("delay", 'delay = "20 seconds"')):
            if getattr(entry, option) is None:
                wrong = f"{at} {option} is missing: {entry.stream!r} is a query"
                what = "the column with the time of its results" if option == "time" else "how late a result may come"
                raise JobError(wrong, what, f"add {example}")
        return Feed(self._folder(entry.stream), str(entry.time), str(entry.delay))

    def queries(self, depth: int, names: list[str]) -> Job:
        """The part of some queries."""
        job = self.job
        taken = dict.fromkeys(one for name in names for one in self.taken(name))
        feeds = {name: Feed(self._folder(name), self._time_of(name), "0 seconds") for name in taken}
        sunk: dict[str, JobQuery] = {}
        for name in names:
            sink = self._sink("queries", name, job.queries[name].sink)
            assert sink is not None
            sunk[name] = replace(job.queries[name], sink=sink)
        read = {one for name in names for one in self.read(name)}
        streams = [name for name in job.streams if name.lower() in {one.lower() for one in read}]
        return self._part(f"{depth}-queries", streams, feeds, queries=sunk)

    def _time_of(self, function: str) -> str:
        """The name of the time of a function's results: that of the stream at the beginning."""
        entry = self.job.functions[function]
        if entry.stream in self.job.streams:
            return self.job.streams[entry.stream].time
        return str(entry.time) if entry.stream in self.job.queries else self._time_of(entry.stream)

    def _sink(self, kind: str, name: str, own: JobSink | None) -> JobSink | None:
        """Where results go that are fed on: into Parquet files."""
        if not self._is_fed_on(name):
            return own
        if own is None or own.format in _NONE:
            return JobSink("parquet", f"{self._folder(name)}/files")
        if own.format != "parquet" or own.path is None or "://" in own.path:
            wrong = f"{self.job.file}: [{kind}.{name}] sink is {own.format} {own.path or ''}".rstrip()
            wrong += f", and {' and '.join(self._takers(name))} takes its results"
            fix = 'sink = { format = "parquet", path = "..." }, or { format = "noop" }'
            raise JobError(wrong, "Parquet files in a folder that machines share, or noop", fix)
        return own

    def _is_fed_on(self, name: str) -> bool:
        return bool(self._takers(name))

    def _takers(self, name: str) -> list[str]:
        """Those of the other kind that take its results."""
        if name in self.job.functions:
            return [query for query in self.job.queries if name in self.taken(query)]
        return [one for one, entry in self.job.functions.items() if entry.stream == name]

    def _folder(self, name: str) -> str:
        return f"{self.job.flow.checkpoint}/{FEEDS}/{name}"

    def _part(
        self, name: str, streams: list[str], feeds: Mapping[str, Feed], *,
        functions: Mapping[str, JobFunction] | None = None, queries: Mapping[str, JobQuery] | None = None,
    ) -> Job:  # fmt: skip
        job, flow = self.job, self.job.flow
        own = functions or queries or {}
        given = {one: self._folder(one) for one in own if self._is_fed_on(one)}
        return replace(
            job,
            flow=replace(flow, name=f"{flow.name}-{name}", checkpoint=f"{flow.checkpoint}/{name}"),
            streams={one: job.streams[one] for one in streams},
            queries=queries or {},
            functions=functions or {},
            control=job.control if queries else None,
            tables=job.tables if queries else {},
            feeds=feeds,
            given=given,
        )
