"""A story that ends wrong, made smaller while it still does.

Ways to make it smaller are tried in turn, coarse ones first: no options, fewer queries, epochs, events, rows, half of
them and then one by one. A smaller story that ends wrong, in whatever way, takes the place of the larger, until no way
helps or time is up.

Invariant: what is given ends wrong. Cost: a play for each try.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from braidstream.lab.torture.story import Event, Options, Row, Story
from braidstream.model.values import changed

__all__ = ["shrink"]


def shrink(story: Story, is_wrong: Callable[[Story], bool], most_s: float = 60.0) -> Story:
    """The smallest that was found in time."""
    until = time.monotonic() + most_s
    smaller = True
    while smaller and time.monotonic() < until:
        smaller = False
        for way in (_simpler, _fewer_asks, _fewer_events, _fewer_epochs, _fewer_rows, _fewer_conditions):
            for candidate in way(story):
                if time.monotonic() > until:
                    return story
                if is_wrong(candidate):
                    story, smaller = candidate, True
                    break
    return story


def _simpler(story: Story) -> Iterator[Story]:
    plain, now = Options(), story.options
    for name in now.__struct_fields__:
        if getattr(now, name) != getattr(plain, name) and name not in ("final", "biclique"):
            one: dict[str, Any] = {name: getattr(plain, name)}
            yield changed(story, options=changed(now, **one))


def _fewer_asks(story: Story) -> Iterator[Story]:
    """Those that are there throughout still have to read all streams; a stream that none reads goes."""
    for left_out in story.asks:
        asks = tuple(ask for ask in story.asks if ask is not left_out)
        read = {entry.stream for ask in asks if ask.is_permanent for entry in ask.inputs}
        if read == set(story.streams):
            yield changed(story, asks=asks)
        elif {entry.stream for ask in asks for entry in ask.inputs} <= read and read:
            delays = {name: delay for name, delay in story.delays_us.items() if name in read}
            epochs = tuple({n: rows for n, rows in epoch.items() if n in read} for epoch in story.epochs)
            yield changed(story, asks=asks, delays_us=delays, epochs=epochs)


def _fewer_events(story: Story) -> Iterator[Story]:
    for at in range(len(story.events)):
        yield changed(story, events=story.events[:at] + story.events[at + 1 :])
    for at, event in enumerate(story.events):
        if event.slots is not None:
            without = changed(event, slots=None)
            yield changed(story, events=(*story.events[:at], without, *story.events[at + 1 :]))


def _fewer_epochs(story: Story) -> Iterator[Story]:
    for at in range(len(story.epochs)):
        if len(story.epochs) > 1:
            yield _without_epoch(story, at)


def _without_epoch(story: Story, at: int) -> Story:
    """What happened then happens in the epoch after it."""
    last = len(story.epochs) - 1

    def moved(number: int) -> int:
        return min(number - (number > at), last)

    asks = []
    for ask in story.asks:
        begin = min(moved(ask.begin), last - 1)
        asks.append(changed(ask, begin=begin, end=None if ask.end is None else max(moved(ask.end), begin)))
    events: list[Event] = [changed(event, epoch=moved(event.epoch)) for event in story.events]
    epochs = story.epochs[:at] + story.epochs[at + 1 :]
    return changed(story, epochs=epochs, asks=tuple(asks), events=tuple(events))


def _fewer_rows(story: Story) -> Iterator[Story]:
    for number, epoch in enumerate(story.epochs):
        for name, rows in epoch.items():
            for kept in _parts(rows):
                epochs = list(story.epochs)
                epochs[number] = {**epoch, name: kept}
                yield changed(story, epochs=tuple(epochs))


def _parts(rows: list[Row]) -> Iterator[list[Row]]:
    if len(rows) > 3:
        half = len(rows) // 2
        yield rows[:half]
        yield rows[half:]
        return
    for at in range(len(rows)):
        yield rows[:at] + rows[at + 1 :]


def _fewer_conditions(story: Story) -> Iterator[Story]:
    for at, ask in enumerate(story.asks):
        for name, value in (("predicates", ()), ("where", None), ("aggregates", ()), ("group_by", ())):
            if getattr(ask, name) and not (name == "aggregates" and ask.counted):
                one: dict[str, Any] = {name: value}
                fewer = changed(ask, **one)
                yield changed(story, asks=(*story.asks[:at], fewer, *story.asks[at + 1 :]))
