"""Where the time of an epoch goes: routing, exchange, join, store, deliver, commit, and what is the engine's own.

Tasks say when they began and ended on the clock of their machine, and slots how their time divides. On one machine the
clock is the driver's, so the parts add up to the epoch; over several machines they are as exact as clocks agree.

    routing     from the first routing task's begin to the last one's end
    exchange    from there to the first slot's begin, and the same between later stages
    join        of the time in which slots ran: unpacking, sorting, probing, results
    store       the rest of it: segments, merges, sections
    deliver     the phase of that name, as `commit`
    engine      the rest until the commit: planning, starting tasks, collecting reports

Cost: O(reports).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from braidstream.model.reports import SlotReport

__all__ = ["PARTS", "parts_of"]

PARTS = ("routing", "exchange", "join", "store", "deliver", "commit", "engine")
Span = tuple[float, float]


def parts_of(reports: Sequence[SlotReport], seconds: Mapping[str, float]) -> dict[str, float]:
    """The seconds of each part; their sum is the epoch's total."""
    parts = dict.fromkeys(PARTS, 0.0)
    spans = _stages(reports)
    routing = _span([(tally.began, tally.ended) for report in reports for tally in report.tallies if tally.began])
    parts["routing"] = _length(routing)
    parts["exchange"] = _between([routing, *spans])
    ran = sum(map(_length, spans))
    busy = sum(report.busy_s for report in reports)
    store = sum(report.store_s for report in reports)
    parts["store"] = ran * (store / busy if busy else 0.0)
    parts["join"] = ran - parts["store"]
    parts["deliver"], parts["commit"] = seconds.get("deliver", 0.0), seconds.get("commit", 0.0)
    parts["engine"] = max(seconds.get("total", 0.0) - sum(parts.values()), 0.0)
    return parts


def _stages(reports: Sequence[SlotReport]) -> list[Span | None]:
    """When slots ran, of each stage in turn."""
    of_stage: dict[int, list[Span]] = defaultdict(list)
    for report in reports:
        if report.began:
            of_stage[report.stage].append((report.began, report.began + report.busy_s))
    return [_span(of_stage[stage]) for stage in sorted(of_stage)]


def _span(spans: Sequence[Span]) -> Span | None:
    return (min(begin for begin, _ in spans), max(end for _, end in spans)) if spans else None


def _length(span: Span | None) -> float:
    return 0.0 if span is None else max(span[1] - span[0], 0.0)


def _between(spans: Sequence[Span | None]) -> float:
    """The time between spans, where they do not overlap."""
    known = [span for span in spans if span is not None]
    return sum(max(after[0] - before[1], 0.0) for before, after in pairwise(known))
