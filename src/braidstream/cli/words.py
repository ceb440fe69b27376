"""Numbers, sizes, lengths of time and moments as the terminal shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone

__all__ = ["count", "each", "length", "moment", "number", "size", "spark_line"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LEVELS = "▁▂▃▄▅▆▇█"


def number(value: float) -> str:
    """A whole number with its thousands apart."""
    return f"{round(value):,}"


def count(n: int, word: str, plural: str = "") -> str:
    """A number of things."""
    return f"{n:,} {word if n == 1 else plural or word + 's'}"


def size(n_bytes: float) -> str:
    """A number of bytes in the unit that suits it."""
    value = float(n_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def length(seconds: float) -> str:
    """A length of time: seconds while they are few."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def moment(us: int | None) -> str:
    """An event time in UTC, to the millisecond."""
    if us is None:
        return "none yet"
    try:
        shown = (_EPOCH + timedelta(microseconds=us)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except OverflowError:
        return f"{us} us"
    return f"{shown} UTC"


def each(counts: Mapping[str, int]) -> str:
    """Named counts in a row."""
    return ", ".join(f"{name} {number(n)}" for name, n in counts.items())


def spark_line(values: Iterable[float], width: int) -> str:
    """The last `width` values as bars from 0 to the largest of them."""
    shown = list(values)[-width:]
    top = max(shown, default=0.0) or 1.0
    return "".join(_LEVELS[min(int(value / top * len(_LEVELS)), len(_LEVELS) - 1)] for value in shown)
