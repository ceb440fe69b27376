"""What is computed for each window of the stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from braidstream.functions import stream_function

RATE_HZ = 4096


@stream_function(gives={"loudest_hz": "float", "share": "float"})
def loudest(windows: Any) -> dict[str, Any]:
    """The strongest frequency of each window, and its share of the power; `windows["level"]` has a row a window."""
    power = np.abs(np.fft.rfft(windows["level"] * np.hanning(1024))) ** 2
    at = power[:, 1:].argmax(axis=1) + 1
    top = np.take_along_axis(power, at[:, None], axis=1)[:, 0]
    return {"loudest_hz": at * RATE_HZ / 1024, "share": top / power.sum(axis=1)}
