"""GSDM's mechanisms, broken one by one (`lab.papers.mutations`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from braidstream.functions import fft, nodes
from braidstream.functions.fft import CHANNELS, fft3
from braidstream.functions.templates import Level, Split
from braidstream.functions.window_batch import WindowBatch
from braidstream.lab.papers import gsdm
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


@mutation("gsdm fig12", "gsdm fig15", "gsdm fig12-spark", "gsdm fig15-spark")
def all_windows_go_to_the_first_node(broken: Broken) -> None:
    """4.1: S-Distribute gives every window to its first child."""
    whole = nodes._parts

    def lopsided(level: Level, batch: WindowBatch, count: int, stream: str) -> list[WindowBatch]:
        if isinstance(level.partition, Split):
            return whole(level, batch, count, stream)
        return [batch, *[batch.take(slice(0, 0))] * (level.n - 1)]

    broken.set(nodes, "_parts", lopsided)


@mutation(
    "gsdm fig12",
    "gsdm fig13",
    "gsdm fig14",
    "gsdm fig15",
    "gsdm fig12-spark",
    "gsdm fig13-spark",
    "gsdm fig15-spark",
)
def a_window_is_not_split(broken: Broken) -> None:
    """4.2: OS-Split gives all of a window to each of its children."""
    whole = nodes._parts

    def unsplit(level: Level, batch: WindowBatch, count: int, stream: str) -> list[WindowBatch]:
        return [batch] * level.n if isinstance(level.partition, Split) else whole(level, batch, count, stream)

    broken.set(nodes, "_parts", unsplit)


@mutation("gsdm table1", "gsdm table1-spark")
def parts_are_joined_without_computing(broken: Broken) -> None:
    """4.2: OS-Join forms windows of the right size and leaves out the last step of the FFT."""

    def nothing(spectra: Sequence[Any]) -> Any:
        shape = spectra[0].shape
        return np.empty((*shape[:-1], shape[-1] * len(spectra)), np.complex128)

    broken.set(fft, "fft_combine", nothing)
