"""FFT of three channels: the worked example (GSDM 3.1 and 4.2), whole and in parts.

`fft3` transforms each channel of a window. For window split, `fft3_part` takes every n-th sample (radix n: 2, 4, 8 or
any other number that divides the length), the parts are transformed on their own, and `fft3_combine` puts their spectra
together: with F_r the transform of part r of a window of N samples, M = N/n, and W = exp(-2 pi i / N),

    X[k + m M] = sum over r of  exp(-2 pi i r m / n) W^(r k) F_r[k]          for k < M and m < n

that is, a twist by the twiddle factors W^(r k), then an n-point transform across the parts.

Invariant: combine(fft(part 0), ..., fft(part n-1)) = fft(window), to rounding. Cost of a part: one copy of its samples;
of combine: one complex product and log2(n) sums a sample where n is a power of two, n products otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from braidstream.functions.function import StreamFunction, register, stream_function
from braidstream.functions.stream_types import StreamType, declare_type
from braidstream.functions.window_batch import Array, WindowBatch

__all__ = [
    "CHANNELS",
    "RADIOSIGNAL",
    "fft3",
    "fft3_combine",
    "fft3_part",
    "fft_combine",
    "fft_part",
    "slow_fft3",
    "slowed",
]

CHANNELS = ("x", "y", "z")
RADIOSIGNAL: StreamType = declare_type(
    "RADIOSIGNAL", ts="timestamp", x="vector of complex", y="vector of complex", z="vector of complex"
)
"""The radio signals of GSDM's application: three channels, one for each dimension of space."""
Complexes = npt.NDArray[np.complex128]


@stream_function(takes=RADIOSIGNAL, gives=RADIOSIGNAL)
def fft3(windows: WindowBatch) -> dict[str, Array]:
    """The FFT of each channel."""
    return {name: np.fft.fft(windows[name]) for name in CHANNELS}


def slowed(name: str, ns_a_step: float) -> StreamFunction:
    """`fft3` with a delay of `ns_a_step` for each of its n log2(n) steps a channel: the paper's slow implementation."""

    def slow(windows: WindowBatch) -> dict[str, Array]:
        size = windows[CHANNELS[0]].shape[-1]
        delay_s = len(windows) * len(CHANNELS) * size * max(np.log2(size), 1.0) * ns_a_step * 1e-9
        end = time.thread_time() + delay_s
        found = {channel: np.fft.fft(windows[channel]) for channel in CHANNELS}
        while time.thread_time() < end:
            pass
        return found

    return register(StreamFunction(name, slow, RADIOSIGNAL, RADIOSIGNAL))


slow_fft3 = slowed("slow_fft3", 30.0)


def fft3_part(windows: Mapping[str, Array] | WindowBatch, n: int, k: int) -> dict[str, Array]:
    """Part k of n of each channel: the samples whose index is k modulo n."""
    return {name: fft_part(windows[name], n, k) for name in CHANNELS}


@stream_function(takes=RADIOSIGNAL, gives=RADIOSIGNAL)
def fft3_combine(parts: Sequence[WindowBatch]) -> dict[str, Array]:
    """The spectra of whole windows from the spectra of their parts, in the order of the parts."""
    return {name: fft_combine([part[name] for part in parts]) for name in CHANNELS}


def fft_part(vectors: Array, n: int, k: int) -> Array:
    """The samples with index k modulo n, of each vector along the last axis."""
    if vectors.shape[-1] % n:
        raise ValueError(f"a window of {vectors.shape[-1]} samples cannot be split into {n} equal parts")
    return vectors[..., k::n]


def fft_combine(spectra: Sequence[Array]) -> Complexes:
    """The transform of vectors from the transforms of their parts (radix len(spectra))."""
    n, m = len(spectra), spectra[0].shape[-1]
    twists = _twists(n, m)
    twisted = [spectra[0].astype(np.complex128, copy=False), *(spectra[r] * twists[r] for r in range(1, n))]
    rows = _across(twisted)
    out = np.empty((*spectra[0].shape[:-1], n * m), dtype=np.complex128)
    for place, row in enumerate(rows):
        out[..., place * m : (place + 1) * m] = row
    return out


@lru_cache(maxsize=32)
def _twists(n: int, m: int) -> Complexes:
    """W^(r k) for part r and index k."""
    return np.asarray(np.exp(-2j * np.pi * np.outer(np.arange(n), np.arange(m)) / (n * m)))


def _across(parts: list[Any]) -> list[Any]:
    """The transform across the parts: butterflies while their number is even, else the sums as they are written."""
    n = len(parts)
    if n == 1:
        return parts
    if n % 2:
        return [sum(part * np.exp(-2j * np.pi * r * m / n) for r, part in enumerate(parts)) for m in range(n)]
    if n == 2:
        return [parts[0] + parts[1], parts[0] - parts[1]]
    even, odd = _across(parts[0::2]), _across(parts[1::2])
    half = n // 2
    turned = [odd[m] * _turn(m, n) if m else odd[0] for m in range(half)]
    return [*(e + o for e, o in zip(even, turned, strict=True)), *(e - o for e, o in zip(even, turned, strict=True))]


def _turn(m: int, n: int) -> complex:
    """exp(-2 pi i m / n), exact at the quarter turn."""
    return -1j if 4 * m == n else complex(np.exp(-2j * np.pi * m / n))
