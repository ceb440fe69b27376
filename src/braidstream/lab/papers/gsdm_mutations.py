"""GSDM's mechanisms, broken one by one (`lab.papers.mutations`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from braidstream.functions.fft import CHANNELS, fft3, fft3_combine, slowed
from braidstream.functions.function import StreamFunction
from braidstream.functions.templates import Template
from braidstream.functions.window_batch import WindowBatch
from braidstream.lab.papers import gsdm, gsdm_bench, gsdm_spark
from braidstream.lab.papers.mutations import Broken, mutation

__all__: list[str] = []


@mutation("gsdm fig11")
def a_transform_is_made_again_and_again(broken: Broken) -> None:
    """5: the FFT of a window is made once for each 256 samples, so that it costs more than n log n."""

    def repeated(windows: WindowBatch) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(windows[CHANNELS[0]].shape[-1] // 256):
            found = fft3(windows)
        return found

    broken.set(gsdm, "fft3", repeated)


@mutation("gsdm fig12", "gsdm fig13", "gsdm fig14", "gsdm fig15")
def a_part_costs_more_than_the_whole(broken: Broken) -> None:
    """4.2: a window that is split is not transformed any faster: each part takes as long as all together."""
    whole = gsdm_bench._template

    def dear(strategy: str, function: StreamFunction, degrees: Sequence[int]) -> Template:
        return whole(strategy, _dear() if strategy == "WS" else function, degrees)

    broken.set(gsdm_bench, "_template", dear)


@cache
def _dear() -> StreamFunction:
    return slowed("dear_fft3", 120.0)


@mutation("gsdm fig12-spark", "gsdm fig13-spark", "gsdm fig15-spark")
def work_is_given_to_one_node(broken: Broken) -> None:
    """4.1, 4.2: a template has one part, whatever degree is asked for."""
    broken.set(gsdm_spark, "_template", lambda strategy, degrees: _whole(strategy, [1] * len(degrees)))


_whole = gsdm_spark._template


@mutation("gsdm table1", "gsdm table1-spark")
def parts_are_joined_without_computing(broken: Broken) -> None:
    """4.2: OS-Join forms windows of the right size and leaves out the last step of the FFT."""

    def nothing(parts: Sequence[WindowBatch]) -> dict[str, Any]:
        shape = parts[0][CHANNELS[0]].shape
        return {name: np.empty((*shape[:-1], shape[-1] * len(parts)), np.complex128) for name in CHANNELS}

    for one in (gsdm_bench, gsdm_spark):
        broken.set(one, "fft3_combine", replace(fft3_combine, function=nothing))
