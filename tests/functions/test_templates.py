"""Templates: every plan gives Central's results, in order, each once, whatever is lost, delayed or restarted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.errors import InputError
from braidstream.functions import (
    LATER,
    LOST,
    PCC,
    Answers,
    Central,
    Distribute,
    FunctionFailed,
    Join,
    Merge,
    Plan,
    Split,
    StreamFunction,
    WindowBatch,
    WindowSpec,
    stream_function,
    stream_type,
)  # fmt: skip
from braidstream.functions.fft import fft3_combine, fft3_part, fft_combine, fft_part
from braidstream.functions.local import LocalRun
from braidstream.functions.nodes import Setup
from tests.scale import examples

RESULT = {"total": "float", "squares": "vector of float"}


@stream_function(gives=RESULT)
def squares(windows: WindowBatch) -> dict[str, Any]:
    return {"squares": windows["x"] ** 2, "total": windows["x"].sum(axis=1)}


def halves(windows: WindowBatch, n: int, k: int) -> dict[str, Any]:
    return {"x": windows["x"][:, k::n]}


def interleave(parts: list[WindowBatch]) -> dict[str, Any]:
    out = np.empty((len(parts[0]), sum(p["squares"].shape[1] for p in parts)))
    for k, part in enumerate(parts):
        out[:, k :: len(parts)] = part["squares"]
    return {"squares": out, "total": sum(p["total"] for p in parts)}


def by_time(windows: WindowBatch, n: int) -> Any:
    return (windows.ts // 10 * 7) % n


def faulty(lost: frozenset[int], delays: dict[int, int]) -> StreamFunction:
    """Squares that never answers some windows, and others only at a later attempt."""

    def answer(windows: WindowBatch) -> Answers:
        waits = np.array([delays.get(int(s), 0) for s in windows.seq])
        return Answers(squares(windows), np.isin(windows.seq, list(lost)), waits > windows.offered())

    return StreamFunction("faulty", answer, stream_type("faulty", RESULT))


def templates(leaf: Any, timeout: str = "0 seconds") -> st.SearchStrategy[Any]:
    methods = st.sampled_from([Distribute("round_robin"), Distribute("hash"), Distribute(by_time)])

    def over(inner: Any) -> st.SearchStrategy[Any]:
        degree = st.integers(1, 8)
        distributed = st.builds(lambda n, m, c: PCC(n, m, c, Merge(timeout)), degree, methods, inner)
        split = st.builds(lambda n, c: PCC(n, Split(halves), c, Join(interleave, timeout)), degree, inner)
        return distributed | split

    flat = over(st.just(leaf))
    return st.just(Central(leaf, timeout)) | flat | over(flat)


def epochs_of(x: Any, cuts: list[int]) -> list[list[WindowBatch]]:
    times = np.arange(len(x), dtype=np.int64) * 10
    return [
        [WindowBatch(np.zeros(len(t), np.int64), t, {"x": v})]
        for t, v in zip(np.split(times, cuts), np.split(x, cuts), strict=True)
    ]


def run(
    template: Any, epochs: list[list[WindowBatch]], spec: WindowSpec, crash_at: frozenset[int] = frozenset()
) -> Any:
    setup = Setup("s", spec, 0, Plan.of(template))
    running, results, counts = LocalRun(setup), [], {"given_up": 0, "lost": 0, "late": 0}
    for number, epoch in enumerate(epochs):
        if number in crash_at:  # an attempt whose results and state are lost, then a new process
            LocalRun(setup, running.state).epoch(epoch)
            running = LocalRun(setup, running.state)
        results += running.epoch(epoch)
        counts["given_up"] += running.reports[-1].given_up
        counts["lost"] += running.total("lost")
        counts["late"] += running.reports[-1].late
    return results, counts


def column(results: list[WindowBatch], name: str) -> list[Any]:
    return [value.tolist() for batch in results for value in batch[name]]


def numbers(results: list[WindowBatch]) -> list[int]:
    return [int(s) for batch in results for s in batch.seq]


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_every_plan_gives_the_results_of_central_in_order(data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 150))
    spec = WindowSpec(data.draw(st.integers(1, 20)), data.draw(st.integers(1, 25)))
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=6)))
    template = data.draw(templates(squares))
    crashes = frozenset(data.draw(st.lists(st.integers(0, 6), max_size=2)))
    epochs = epochs_of(np.random.default_rng(n).integers(-50, 50, n).astype(float), cuts)
    expected, _ = run(Central(squares), epochs, spec)
    found, counts = run(template, epochs, spec, crashes)
    assert numbers(found) == numbers(expected) == list(range(max((n - spec.size) // spec.stride + 1, 0)))  # type: ignore[operator]
    assert column(found, "squares") == column(expected, "squares")
    assert np.allclose(column(found, "total"), column(expected, "total"))
    assert counts == {"given_up": 0, "lost": 0, "late": 0}


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_a_lost_window_and_only_that_one_is_missing_and_counted(data: st.DataObject) -> None:
    spec, n = WindowSpec(6, data.draw(st.integers(1, 9))), 150
    n_windows = (n - 6) // spec.stride + 1
    lost = frozenset(data.draw(st.lists(st.integers(0, n_windows - 2), max_size=4)))
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=6)))
    template = data.draw(templates(faulty(lost, {})))
    epochs = epochs_of(np.arange(float(n)), cuts)
    found, counts = run(template, epochs, spec, frozenset(data.draw(st.lists(st.integers(0, 6), max_size=2))))
    assert numbers(found) == [k for k in range(n_windows) if k not in lost]
    assert counts["given_up"] == len(lost)
    assert counts["late"] == 0
    expected, _ = run(Central(squares), epochs, spec)
    wanted = [row for k, row in enumerate(column(expected, "squares")) if k not in lost]
    assert column(found, "squares") == wanted


@given(st.data())
@settings(max_examples=examples(100), deadline=None)
def test_delayed_windows_keep_their_place_within_the_time_out(data: st.DataObject) -> None:
    """Window k at time 40 k; an epoch is 40 samples (10 windows, 400 us); delays of one or two epochs."""
    spec, n = WindowSpec(4, 4), 400
    delays = data.draw(st.dictionaries(st.integers(0, 70), st.integers(1, 2), max_size=5))
    template = data.draw(templates(faulty(frozenset(), delays), "2 milliseconds"))
    epochs = epochs_of(np.arange(float(n)), list(range(40, n, 40)))
    found, counts = run(template, epochs, spec, frozenset(data.draw(st.lists(st.integers(0, 9), max_size=2))))
    assert numbers(found) == list(range(100))
    assert counts == {"given_up": 0, "lost": 0, "late": 0}


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_a_window_that_comes_after_its_time_out_is_given_up_and_then_dropped(degree: int) -> None:
    """Window 3 (time 120) comes with epoch 2; at epoch 1 the newest window is at 760: 640 us later."""
    template = PCC(degree, Distribute(), faulty(frozenset(), {3: 2}), Merge("500 microseconds"))
    found, counts = run(template, epochs_of(np.arange(120.0), [40, 80]), WindowSpec(4, 4))
    assert numbers(found) == [k for k in range(30) if k != 3]
    assert counts == {"given_up": 1, "lost": 0, "late": 1}


def test_a_merge_holds_what_comes_after_a_missing_window_until_the_time_out() -> None:
    """|0 1 2 - 4 ..9|10 ..19|: 3 is lost, 600 us are over with window 19 only (760 - 120 = 640)."""
    setup = Setup("s", WindowSpec(4, 4), 0, Plan.of(PCC(2, Distribute(), faulty(frozenset({3}), {}), Merge("600 us"))))
    running = LocalRun(setup)
    first, second = epochs_of(np.arange(80.0), [40])
    assert numbers(running.epoch(first)) == [0, 1, 2]
    assert running.total("waiting") == 7
    assert numbers(running.epoch(second)) == list(range(4, 20))
    assert (running.total("given_up"), running.total("waiting")) == (1, 0)


def test_an_inner_merge_counts_what_it_gives_up_and_so_does_the_outer_one() -> None:
    """Window 5 goes to the second branch. The count of the outermost node is what the stream lacks."""
    template = PCC(2, Distribute(), PCC(2, Distribute(), faulty(frozenset({5}), {}), Merge()), Merge())
    running = LocalRun(Setup("s", WindowSpec(4, 4), 0, Plan.of(template)))
    given_up = np.zeros(3, dtype=np.int64)
    for epoch in epochs_of(np.arange(80.0), [40]):
        running.epoch(epoch)
        given_up += [r.given_up for r in running.reports if r.kind == "combine"]
    assert given_up.tolist() == [0, 1, 1]


def test_functions_of_one_window_may_lose_or_delay_it() -> None:
    def answer(window: Any) -> Any:
        if window.seq == 2:
            return LOST
        if window.seq == 4 and window.attempts == 0:
            return LATER
        return {"total": float(window["x"].sum()), "squares": window["x"] ** 2}

    function = StreamFunction("each", answer, stream_type("each", RESULT), per="window")
    template = PCC(3, Distribute(), function, Merge("1 second"))
    setup = Setup("s", WindowSpec(2, 2), 0, Plan.of(template))
    running = LocalRun(setup)
    early = [numbers(running.epoch(epoch)) for epoch in epochs_of(np.arange(40.0), [20])]
    assert early == [[0, 1], []]
    late = [WindowBatch(np.zeros(1, np.int64), np.array([t]), {"x": np.zeros(1)}) for t in (2_000_000, 2_000_001)]
    assert numbers(running.epoch(late)) == [*range(3, 21)]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 8, 16])
@pytest.mark.parametrize("m", [1, 2, 16, 1024])
def test_fft_in_parts_equals_numpy(n: int, m: int) -> None:
    x = np.random.default_rng(n * m).normal(size=(2, 3, n * m, 2)) @ [1, 1j]
    whole = np.fft.fft(x)
    parts = fft_combine([np.fft.fft(fft_part(x, n, k)) for k in range(n)])
    assert np.abs(parts - whole).max() <= 1e-9 * np.abs(whole).max()


@pytest.mark.parametrize("radix", [2, 4, 8])
@pytest.mark.parametrize("inner", [None, 2, 4])
@pytest.mark.parametrize("size", [256, 1024])
def test_fft3_by_window_split_equals_numpy(radix: int, inner: int | None, size: int) -> None:
    leaf: Any = "fft3" if inner is None else PCC(inner, Split(fft3_part), "fft3", Join(fft3_combine))
    setup = Setup(
        "radio", WindowSpec(size, size // 2), 0, Plan.of(PCC(radix, Split(fft3_part), leaf, Join(fft3_combine)))
    )
    rng = np.random.default_rng(size)
    x = {name: rng.normal(size=(4 * size, 2)) @ [1, 1j] for name in "xyz"}
    rows = WindowBatch(np.zeros(4 * size, np.int64), np.arange(4 * size), x)
    results = LocalRun(setup).epoch([rows])
    for name in "xyz":
        whole = np.fft.fft(np.lib.stride_tricks.sliding_window_view(x[name], size)[:: size // 2])
        found = np.concatenate([batch[name] for batch in results])
        assert np.abs(found - whole).max() <= 1e-9 * np.abs(whole).max()


def test_a_window_that_cannot_be_split_names_function_stream_and_time() -> None:
    setup = Setup("radio", WindowSpec(6), 0, Plan.of(PCC(4, Split(fft3_part), "fft3", Join(fft3_combine))))
    rows = WindowBatch(np.zeros(6, np.int64), np.arange(6) + 1_000_000, {name: np.zeros(6, complex) for name in "xyz"})
    with pytest.raises(FunctionFailed, match=r"fft3_part.*1970-01-01 00:00:01.000000 UTC of stream 'radio'.*4 equal"):
        LocalRun(setup).epoch([rows])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PCC(0, Distribute(), "fft3", Merge()), "degree"),
        (lambda: PCC(2, Distribute(), "fft3", Join(fft3_combine)), "merged"),
        (lambda: PCC(2, Split(fft3_part), "fft3", Merge()), "joined"),
        (lambda: Distribute("round robin"), "did you mean 'round_robin'"),
        (lambda: Plan.of("fft33"), "did you mean 'fft3'"),
        (lambda: Plan.of(len), "does not say what it gives"),
        (lambda: Plan.of("nowhere.at.all:f"), "nowhere"),
        (lambda: Plan.of("braidstream.functions.fft:fft4"), "did you mean 'fft3'"),
        (lambda: Merge("3 parsecs"), "parsecs"),
    ],
)
def test_wrong_templates_are_refused_when_they_are_made(make: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


def test_a_plan_describes_itself() -> None:
    tree = PCC(2, Distribute(), PCC(3, Split(fft3_part), "fft3", Join(fft3_combine)), Merge("100 milliseconds"))
    plan = Plan.of(tree)
    assert plan.describe().splitlines() == [
        "WD2-WS3: function fft3, 6 compute nodes of 12",
        "  partition Distribute(round_robin) x 2 on 1 node",
        "  partition Split(fft3_part) x 3 on 2 nodes",
        "  compute   fft3 on 6 nodes",
        "  combine   Join(fft3_combine) x 3 on 2 nodes",
        "  combine   Merge(timeout 100 milliseconds) x 2 on 1 node",
    ]
