"""How fast streams come, in tuples a second of event time, measured epoch by epoch and remembered in the manifest.

For each stream two sums are kept, tuples and event time passed, in which an epoch counts a tenth less with every one
after it. Their quotient follows a change of the rate within some ten epochs, and epochs in which time stands still, or
in which a stream is silent, are weighed by what they are. The first epoch of a stream only says where its time begins.

Pure: sums in, sums out. Cost: O(streams).
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Pace", "paced", "rates_of"]

Pace = tuple[float, float]
"""Tuples, and microseconds of event time, both weighed by age."""
_FADING = 0.9


def paced(
    known: Mapping[str, Pace], before: Mapping[str, int], newest: Mapping[str, int], rows: Mapping[str, int]
) -> dict[str, Pace]:
    """The sums after an epoch with so many rows of each stream, and the newest times before and after it."""
    after = dict(known)
    for stream, time in newest.items():
        if stream in before and (rows.get(stream) or time > before[stream]):
            tuples, passed = after.get(stream, (0.0, 0.0))
            after[stream] = (_FADING * tuples + rows.get(stream, 0), _FADING * passed + time - before[stream])
    return after


def rates_of(known: Mapping[str, Pace]) -> dict[str, float]:
    """Tuples a second by stream, of streams whose time has passed."""
    return {stream: tuples * 1e6 / passed for stream, (tuples, passed) in known.items() if passed > 0 and tuples > 0}
