"""Window formation: whatever the epochs, the windows are one stride view over the stream in the order of time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from braidstream.errors import InputError
from braidstream.functions.nodes import NodeState
from braidstream.functions.window_batch import WindowBatch, ordered, pack, unpack
from braidstream.functions.windowing import FormerState, WindowSpec, advance
from tests.scale import examples

I64 = np.int64


def samples(ts: Any, **fields: Any) -> WindowBatch:
    times = np.asarray(ts, dtype=I64)
    return WindowBatch(np.zeros(len(times), dtype=I64), times, {name: np.asarray(a) for name, a in fields.items()})


def formed(
    epochs: list[WindowBatch], spec: WindowSpec, delay_us: int = 0
) -> tuple[list[WindowBatch], int, FormerState]:
    state, windows, late = FormerState(), [], 0
    for epoch in epochs:
        made, state, n_late = advance(state, [epoch], spec, delay_us)
        windows += made
        late += n_late
    return windows, late, state


def stacked(windows: list[WindowBatch], name: str, size: int) -> np.ndarray[Any, Any]:
    return np.concatenate([w[name] for w in windows]) if windows else np.empty((0, size))


@given(st.data())
@settings(max_examples=examples(200), deadline=None)
def test_any_cut_into_epochs_gives_the_stride_view(data: st.DataObject) -> None:
    n, size, step = (data.draw(st.integers(a, b)) for a, b in ((0, 120), (1, 20), (1, 25)))
    x = np.arange(n) * 1.5 + 1j
    times = np.cumsum(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=8)))
    epochs = [samples(t, x=v) for t, v in zip(np.split(times, cuts), np.split(x, cuts), strict=True)]
    windows, late, _ = formed(epochs, WindowSpec(size, step))
    expected = sliding_window_view(x, size)[::step] if n >= size else np.empty((0, size))
    assert late == 0
    assert np.array_equal(stacked(windows, "x", size), expected)
    assert np.concatenate([[], *(w.seq for w in windows)]).tolist() == list(range(len(expected)))
    assert np.concatenate([[], *(w.ts for w in windows)]).tolist() == times[: max(n - size + 1, 0) : step].tolist()


@given(st.data())
@settings(max_examples=examples(200), deadline=None)
def test_samples_out_of_order_within_the_delay_are_sorted_and_late_ones_counted(data: st.DataObject) -> None:
    n, size, step, delay = (data.draw(st.integers(a, b)) for a, b in ((1, 80), (1, 6), (1, 8), (0, 12)))
    times = np.array(data.draw(st.lists(st.integers(0, 60), min_size=n, max_size=n)), dtype=I64)
    x = np.arange(n)
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=6)))
    groups = np.split(np.arange(n), cuts)
    kept, watermark = [], -(10**9)
    for group in groups:
        kept += [i for i in group if times[i] >= watermark]
        if len(group):
            watermark = max(watermark, int(times[: group[-1] + 1].max()) - delay)
    in_order = [i for i in sorted(kept, key=lambda i: (times[i], i)) if times[i] <= watermark]
    windows, late, state = formed([samples(times[g], x=x[g]) for g in groups], WindowSpec(size, step), delay)
    expected = sliding_window_view(np.array(in_order), size)[::step] if len(in_order) >= size else np.empty((0, size))
    assert np.array_equal(stacked(windows, "x", size), expected)
    assert late == n - len(kept)
    assert sum(len(b) for b in state.pending) == len(kept) - len(in_order)


def test_ten_million_samples_in_epochs_of_random_size_equal_one_stride_view() -> None:
    n, size, step = 10_000_000, 1024, 512
    x = np.random.default_rng(7).random(n)
    times = np.arange(n, dtype=I64)
    cuts = np.sort(np.random.default_rng(8).integers(0, n, 60))
    whole = sliding_window_view(x, size)[::step]
    state, at = FormerState(), 0
    for t, v in zip(np.split(times, cuts), np.split(x, cuts), strict=True):
        made, state, late = advance(state, [samples(t, x=v)], WindowSpec(size, step))
        assert late == 0
        for batch in made:
            assert np.array_equal(batch["x"], whole[at : at + len(batch)])
            assert np.array_equal(batch.ts, np.arange(at, at + len(batch)) * step)
            at += len(batch)
    assert at == len(whole) == 19530


def test_windows_are_views_and_the_tail_is_a_small_copy() -> None:
    x = np.arange(10_000.0)
    windows, _, state = formed([samples(np.arange(10_000), x=x)], WindowSpec(100, 1))
    assert np.shares_memory(windows[0]["x"], x)
    assert not windows[0]["x"].flags.writeable
    assert not np.shares_memory(state.tail[0]["x"], x)
    assert len(state.tail[0]) == 99


def test_rows_that_hold_vectors_are_windows_as_they_are_also_of_different_lengths() -> None:
    short, long = samples([5, 1], v=np.ones((2, 3))), samples([3, 1], v=np.zeros((2, 4)))
    windows, late, _ = formed([short, samples([], v=np.empty((0, 3)))], WindowSpec())
    assert (late, [w.ts.tolist() for w in windows]) == (0, [[1, 5]])
    made, _, _ = advance(FormerState(), [short, long], WindowSpec())
    assert [(w.seq.tolist(), w.ts.tolist(), w["v"].shape[1]) for w in made] == [
        ([0], [1], 3), ([1, 2], [1, 3], 4), ([3], [5], 3),
    ]  # fmt: skip


def test_windows_of_several_vector_rows_keep_the_vectors() -> None:
    windows, _, _ = formed([samples(np.arange(5), v=np.arange(10).reshape(5, 2))], WindowSpec(3, 2))
    assert windows[0]["v"].tolist() == [[[0, 1], [2, 3], [4, 5]], [[4, 5], [6, 7], [8, 9]]]


@pytest.mark.parametrize("wrong", [{"size": 0}, {"size": 4, "step": 0}, {"step": 3}, {"size": 2.5}])
def test_wrong_sizes_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="windows"):
        WindowSpec(**wrong)


@given(st.integers(0, 5), st.integers(0, 4), st.sampled_from(["f8", "c16", "f4", "i8", "U3", "?"]))
def test_packing_and_unpacking_is_the_identity(n: int, size: int, dtype: str) -> None:
    values = np.arange(n * size).reshape(n, size).astype(dtype)
    batch = WindowBatch(np.arange(n), np.arange(n) - 7, {"v": values, "s": np.arange(n).astype(dtype)})
    back = unpack(pack(batch))
    assert back.shape == batch.shape
    assert back["v"].dtype == values.dtype
    assert np.array_equal(back["v"], values)
    assert np.array_equal(back.ts, batch.ts)


def test_a_state_survives_its_packed_form() -> None:
    tail = WindowBatch(np.array([3]), np.array([9]), {"x": np.array([1j])}, np.array([2]))
    back = NodeState.unpack(NodeState({"a": 1, "b": None}, {"tail": (tail, tail), "empty": ()}).pack())
    assert back.numbers == {"a": 1, "b": None}
    assert [b["x"].tolist() for b in back.batches["tail"]] == [[1j], [1j]]
    assert back.batches["tail"][0].offered().tolist() == [2]


@given(st.permutations(range(12)), st.lists(st.integers(0, 12), max_size=3), st.booleans())
def test_ordering_batches_is_a_sort_by_number(numbers: list[int], cuts: list[int], mixed: bool) -> None:
    parts = np.split(np.array(numbers), sorted(cuts))
    batches = [
        WindowBatch(p, p * 10, {"x": np.repeat(p[:, None], 1 + (i % 2) * mixed, 1)}) for i, p in enumerate(parts)
    ]
    found = ordered(batches)
    assert np.concatenate([b.seq for b in found]).tolist() == list(range(12))
    assert all((b["x"][:, 0] == b.seq).all() and (b.ts == b.seq * 10).all() for b in found)
    assert mixed or len(found) == 1
