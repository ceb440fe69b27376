"""A story from a seed: streams, queries of every kind, options, and what befalls them.

All streams are read by queries that are there throughout, so that the watermark is that of all of them. The rows of a
stream arrive in the order of time + jitter, with a jitter of at most its delay: no row is late, unless the story wants
some to be, or a stream is idle: what it sends then may be. Stories with too many results are drawn again, smaller.

Invariant: the same seed gives the same story; what came later is drawn by a generator of its own, so that it leaves the
rest as it was. Cost: some milliseconds.
"""

from __future__ import annotations

from random import Random

from braidstream.lab.torture.query_drawing import draw_ask
from braidstream.lab.torture.story import SECOND, Ask, Budget, Event, Options, Row, Story
from braidstream.model.faults import POINTS
from braidstream.model.values import changed

__all__ = ["FIRST_US", "draw_story"]

FIRST_US = 1000 * SECOND
STEP = 5
"""Seconds of event time in an epoch."""
_AT_THE_END = (*POINTS, *[point for point in POINTS if point.startswith("clean-up")] * 3)
_WHAT = ("crash", "crash", "crash", "kill", "kill", "error", "full", "restart", "move", "budget", "zombie")


def draw_story(seed: int, size: float = 1.0) -> Story:
    """One of many. `size` scales the rows."""
    random = Random(f"torture {seed}")
    names = list("ABCD"[: random.choice([2, 2, 2, 3, 3, 4])])
    n_epochs = random.randint(3, 9)
    is_biclique = len(names) == 2 and random.random() < 0.06
    asks = _asks(random, names, n_epochs, is_biclique=is_biclique)
    key = random.choice(["long", "long", "string"])
    delays = {name: random.choice([0, 0, 1, 3]) * SECOND for name in names}
    options = _options(random, asks, is_biclique=is_biclique)
    epochs = _epochs(random, names, delays, key, n_epochs, size, options)
    events = _events(random, n_epochs, options)
    return _with_idle(Random(f"torture {seed}, idle"), Story(seed, key, delays, epochs, asks, options, events))


def _with_idle(random: Random, story: Story) -> Story:
    """Perhaps with streams that are silent for long enough to be idle, from the beginning or later, and come back.

    Of what they send then some is behind the watermark, where they lag.
    """
    if random.random() < 0.65:
        return story
    patience, n_epochs, epochs = {}, len(story.epochs), list(story.epochs)
    for name in random.sample(story.streams, random.choice([1, 1, 1, min(2, len(story.streams))])):
        patience[name] = random.choice([0, 1, 1, 2, 3])
        length = max(patience[name], 1) + random.randint(0, 3)
        begin = random.randint(0, max(n_epochs - length - 1, 0))
        end = begin + length
        lag = random.choice([0, STEP, random.randint(STEP, (length + 1) * STEP)]) * SECOND
        for number in range(begin, n_epochs):
            said = [] if number < end else [(k, j, v, t - lag) for k, j, v, t in epochs[number].get(name, [])]
            epochs[number] = {**epochs[number], name: said}
    takes_late = story.options.takes_late or random.random() < 0.5
    return changed(story, epochs=tuple(epochs), options=changed(story.options, idle=patience, takes_late=takes_late))


def _asks(random: Random, names: list[str], n_epochs: int, *, is_biclique: bool) -> tuple[Ask, ...]:
    """Queries that read all streams throughout, and some that come and go."""
    if is_biclique:
        return (draw_ask(random, "q0", names, kind="inner", plain=True),)
    asks: list[Ask] = []
    while missing := set(names) - {entry.stream for ask in asks for entry in ask.inputs}:
        ask = draw_ask(random, f"q{len(asks)}", names)
        if missing & {entry.stream for entry in ask.inputs}:
            asks.append(ask)
    for _ in range(random.choice([0, 0, 1, 1, 2])):
        begin = random.randint(0, n_epochs - 1)
        end = random.choice([None, random.randint(begin + 1, n_epochs)])
        asks.append(changed(draw_ask(random, f"q{len(asks)}", names), begin=begin, end=end))
    return tuple(asks)


def _options(random: Random, asks: tuple[Ask, ...], *, is_biclique: bool) -> Options:
    slots, shaken = random.randint(1, 4), random.random() < 0.4
    if is_biclique:
        return Options(slots=max(slots, 2), groups=1, biclique=1, shaken=shaken, final=random.random() < 0.5)
    is_plain = all(ask.kind not in ("asof", "asof_left", "aggregate", "counted", "unkeyed") for ask in asks)
    return Options(
        slots=slots,
        groups=random.choice([1, 2, 4, 8, 16]),
        n_tasks=random.randint(1, 3),
        keep=random.choice([1, 2, 10]),
        controller=random.choice(["", "", "restless", "restless", "default"]),
        grids=random.choice(["", "", "restless", "default"]),
        budget=_budget(random) if random.random() < 0.5 else None,
        silence_us=random.choice([None, None, 0, 5 * SECOND]),
        n_hashes=random.choice([0, 0, 0, 3]) if is_plain else 0,
        fan=random.choice([0, 2, 2]),
        shaken=shaken,
        final=random.random() < 0.7,
        takes_late=random.random() < 0.15,
    )


def _budget(random: Random) -> Budget:
    return Budget(
        memory=random.choice([1, 500, 1500, 4000, 10_000]),
        share=random.choice([0.1, 0.3, 1.0]),
        idle_after=random.choice([0, 2, 100]),
        piece=random.choice([200, 20_000]),
        has_time=random.random() < 0.3,
        restless=random.choice([None, random.randint(0, 999)]),
    )


def _epochs(
    random: Random, names: list[str], delays: dict[str, int], key: str, n_epochs: int, size: float, options: Options
) -> tuple[dict[str, list[Row]], ...]:
    """Rows of streams that go on, or say nothing for some epochs; where silence is noticed, one of them often."""
    most = {2: 16, 3: 9, 4: 5}[len(names)]
    n_rows, late = max(round(random.randint(3, most) * size), 1), options.takes_late
    keys = _keys(random, key)
    epochs: list[dict[str, list[Row]]] = [{} for _ in range(n_epochs)]
    silent_one = random.choice(names) if options.silence_us is not None else ""
    for name in names:
        silent = random.choice([0, 0, 0, n_epochs - 1]) if random.random() < 0.3 else 0
        pauses = random.random() < 0.2 or name == silent_one
        for number in range(silent, n_epochs):
            n = 0 if pauses and random.random() < 0.5 else random.randint(0, 2 * n_rows)
            epochs[number][name] = [_row(random, keys, number, delays[name], late=late) for _ in range(n)]
            epochs[number][name].sort(key=lambda row: row[3] + delays[name] * (row[2] % 2))
    return tuple(epochs)


def _row(random: Random, keys: list[int | str | None], number: int, delay: int, *, late: bool) -> Row:
    """Times are whole seconds, so that they meet the bounds of windows, or not."""
    arrived = FIRST_US + (number * STEP + random.randrange(STEP)) * SECOND
    jitter = random.randint(0, delay // SECOND) * SECOND
    if late and random.random() < 0.1:
        jitter += random.randint(0, 15) * SECOND
    return random.choice(keys), random.choice([0, 1, 2, None]), random.randrange(30), arrived - jitter


def _keys(random: Random, key: str) -> list[int | str | None]:
    """Few keys or more, all alike or one of them hot, with or without NULLs."""
    known: list[int | str | None] = (
        [0, 1, 2, -1, 2**62, 7, 8, 9] if key == "long" else ["", "a", "b", "ab", "ß✓", "c", "d"]
    )
    keys = known[: random.choice([1, 2, 3, 3, 4, len(known)])]
    if random.random() < 0.5:
        keys = [*keys, None]
    return [*keys, *[keys[0]] * len(keys)] if random.random() < 0.4 else keys


def _events(random: Random, n_epochs: int, options: Options) -> tuple[Event, ...]:
    made = []
    for _ in range(random.choice([0, 1, 2, 2, 3, 4, 6])):
        epoch, what = random.randint(0, n_epochs), random.choice(_WHAT)
        slots = None if options.biclique else random.choice([None, random.randint(1, 5)])
        point = random.choice(_AT_THE_END if epoch == n_epochs else POINTS) if what == "crash" else ""
        n, seed = int(2 ** random.uniform(0, 6)), random.randint(0, 999)
        if options.biclique and what in ("move", "budget"):
            continue
        made.append(Event(epoch, what, point, n, seed, slots))
    return tuple(sorted(made, key=lambda event: event.epoch))
