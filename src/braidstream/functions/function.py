"""Stream query functions: user code over windows, with a declared result type (GSDM 3.1).

    @stream_function(gives={"power": "vector of float"})
    def power(windows):                      # a batch: windows["x"] is (windows, samples)
        return {"power": abs(windows["x"]) ** 2}

    @stream_function(gives={"peak": "float"}, per="window")
    def peak(window):                        # one window: window["x"] is (samples,)
        return {"peak": window["x"].max()}

A function answers every window it is given. For some it may have no result: a function of one window then returns
`LOST`, or `LATER` to be offered the window again in the next epoch; a function of a batch returns `Answers` with masks.

Invariant: what leaves `call` has the declared fields, element types and shapes; anything else, and any exception, is a
`FunctionFailed` that names function, stream and the window's time stamp. Cost: one Python call a batch or a window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from braidstream.errors import InputError, nearest
from braidstream.functions.failures import FunctionFailed, guarded
from braidstream.functions.stream_types import Kind, StreamType, find_type, stream_type
from braidstream.functions.window_batch import Array, Window, WindowBatch

__all__ = ["LATER", "LOST", "REGISTERED", "Answers", "StreamFunction", "name_of", "register", "stream_function"]

Mask = npt.NDArray[np.bool_]


class _Word:
    """A word that a function of one window may return."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name


LOST: Final = _Word("LOST")
"""There will be no result for this window."""
LATER: Final = _Word("LATER")
"""There is no result yet: offer the window again in the next epoch."""


@dataclass(frozen=True)
class Answers:
    """What a function of a batch returns when some windows have no result; masks are one boolean a window."""

    fields: Mapping[str, npt.ArrayLike]
    lost: Any = None
    later: Any = None


@dataclass(frozen=True)
class Answered:
    """Results that were checked, windows that are to be offered again, and how many were lost."""

    results: WindowBatch
    later: WindowBatch | None = None
    n_lost: int = 0


@dataclass(frozen=True)
class StreamFunction:
    """A callable over windows, its name, what it takes (if it says so) and what it gives."""

    name: str
    function: Callable[..., Any]
    gives: StreamType
    takes: StreamType | None = None
    per: str = "batch"
    address: str = field(default="", compare=False)
    """`module:function`, where it can be found by that."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call the user's code itself, as a test would."""
        return self.function(*arguments, **options)

    def call(self, batch: WindowBatch, stream: str) -> Answered:
        """Answer a batch of windows of a stream."""
        if self.per == "window":
            return self._call_each(batch, stream)
        answer = guarded(self.name, stream, batch.ts, lambda index: self.function(batch.take(index)))
        return self.checked(answer, batch, stream)

    def checked(self, answer: Any, batch: WindowBatch, stream: str) -> Answered:
        """A batch's answer, in the declared types; FunctionFailed where it does not fit."""
        if isinstance(answer, Answers):
            return self._partial(answer, batch, stream)
        return Answered(batch.with_fields(self._fields(answer, batch, stream)))

    def _partial(self, answer: Answers, batch: WindowBatch, stream: str) -> Answered:
        lost, later = (self._mask(mask, batch, stream) for mask in (answer.lost, answer.later))
        fields = self._fields(answer.fields, batch, stream)
        results = batch.with_fields(fields).take(~(lost | later))
        return Answered(results, _again(batch, later & ~lost), int(lost.sum()))

    def _mask(self, mask: Any, batch: WindowBatch, stream: str) -> Mask:
        if mask is None:
            return np.zeros(len(batch), dtype=np.bool_)
        array = np.asarray(mask)
        if array.shape != (len(batch),) or array.dtype != np.bool_:
            raise self._misfit(batch, stream, "a mask", f"bool of shape ({len(batch)},)", _shown(array))
        return array

    def _call_one(self, window: Window, stream: str) -> Any:
        return guarded(self.name, stream, [window.ts], lambda _: self.function(window))

    def _call_each(self, batch: WindowBatch, stream: str) -> Answered:
        answers = [self._call_one(window, stream) for window in batch]
        has = np.array([answer is not LOST and answer is not LATER and answer is not None for answer in answers])
        later = np.array([answer is LATER for answer in answers])
        kept = batch.take(has)
        given = [answer for answer, is_there in zip(answers, has, strict=True) if is_there]
        results = (
            kept.with_fields(self._stacked(given, kept, stream)) if given else WindowBatch(batch.seq[:0], batch.ts[:0])
        )
        return Answered(results, _again(batch, later), int((~has & ~later).sum()))

    def _stacked(self, answers: list[Any], batch: WindowBatch, stream: str) -> dict[str, Array]:
        for i, answer in enumerate(answers):
            if not isinstance(answer, Mapping):
                raise self._misfit(
                    batch.take(slice(i, i + 1)), stream, "the answer", self.gives.describe(), _shown(answer)
                )
        found = {}
        for entry in self.gives.values:
            values = [self._entry(answer, entry.name, batch, i, stream) for i, answer in enumerate(answers)]
            shapes = [np.shape(value) for value in values]
            odd = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
            if odd is not None:
                wrong = f"shape {shapes[odd]}, the window before {shapes[0]}"
                raise self._misfit(
                    batch.take(slice(odd, None)), stream, f"field {entry.name!r}", "one shape in an epoch", wrong
                )
            found[entry.name] = np.stack([np.asarray(value) for value in values])
        self._refuse_unknown([name for answer in answers[:1] for name in answer], batch, stream)
        return self._fields(found, batch, stream)

    def _entry(
        self, answer: Mapping[str, npt.ArrayLike], name: str, batch: WindowBatch, i: int, stream: str
    ) -> npt.ArrayLike:
        if name not in answer:
            raise self._missing(name, list(answer), batch.take(slice(i, None)), stream)
        return answer[name]

    def _fields(self, answer: Any, batch: WindowBatch, stream: str) -> dict[str, Array]:
        if isinstance(answer, (Window, WindowBatch)):
            answer = answer.fields
        if not isinstance(answer, Mapping):
            raise self._misfit(batch, stream, "the answer", f"a mapping, {self.gives.describe()}", _shown(answer))
        found = {}
        for entry in self.gives.values:
            if entry.name not in answer:
                raise self._missing(entry.name, list(answer), batch, stream)
            found[entry.name] = self._fitted(np.asarray(answer[entry.name]), entry.name, entry.kind, batch, stream)
        self._refuse_unknown(list(answer), batch, stream)
        return found

    def _refuse_unknown(self, names: list[str], batch: WindowBatch, stream: str) -> None:
        known = [entry.name for entry in self.gives.values]
        for name in names:
            if name not in known:
                raise self._misfit(batch, stream, "the answer", self.gives.describe(), f"a field {name!r} as well")

    def _fitted(self, array: Array, name: str, kind: Kind, batch: WindowBatch, stream: str) -> Array:
        n_axes = 2 if kind.is_vector else 1
        sized = array.ndim == n_axes and array.shape[0] == len(batch) and kind.size in (None, array.shape[-1])
        if not sized or not _is_safe(array.dtype, kind):
            size = "any" if kind.size is None else kind.size
            shape = f"({len(batch)}, {size})" if kind.is_vector else f"({len(batch)},)"
            declared = f"{kind}: {kind.dtype} of shape {shape}, a row a window"
            raise self._misfit(batch, stream, f"field {name!r}", declared, _shown(array))
        return array if kind.word == "text" else array.astype(kind.dtype, copy=False)

    def _missing(self, name: str, names: list[str], batch: WindowBatch, stream: str) -> FunctionFailed:
        return self._misfit(
            batch, stream, "the answer", self.gives.describe(), f"no field {name!r}, only {', '.join(names)}"
        )

    def _misfit(self, batch: WindowBatch, stream: str, what: str, declared: str, actual: str) -> FunctionFailed:
        ts = int(batch.ts[0]) if len(batch) else 0
        return FunctionFailed(self.name, stream, ts, f"{what} is {actual}", f"as declared, {declared}")


def _again(batch: WindowBatch, later: Mask) -> WindowBatch | None:
    if not later.any():
        return None
    chosen = batch.take(later)
    return WindowBatch(chosen.seq, chosen.ts, chosen.fields, chosen.offered() + 1)


def _is_safe(dtype: np.dtype[Any], kind: Kind) -> bool:
    if kind.word == "text":
        return dtype.kind in "UO"
    return bool(np.can_cast(dtype, np.dtype(kind.dtype), casting="same_kind"))


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return f"{type(value).__name__}"


def stream_function(
    *,
    gives: str | StreamType | Mapping[str, str],
    takes: str | StreamType | Mapping[str, str] | None = None,
    per: str = "batch",
    name: str | None = None,
) -> Callable[[Callable[..., Any]], StreamFunction]:
    """Declare and register a stream query function. `per` is "batch" or "window"."""
    if per not in ("batch", "window"):
        raise InputError(f"a function is per={per!r}", 'per="batch" or per="window"', nearest(per, ("batch", "window")))

    def declare(function: Callable[..., Any]) -> StreamFunction:
        chosen = name or name_of(function)
        made = StreamFunction(
            chosen,
            function,
            _as_type(gives, f"{chosen} gives"),
            None if takes is None else _as_type(takes, f"{chosen} takes"),
            per,
            f"{function.__module__}:{chosen}",
        )
        return register(made)

    return declare


def _as_type(given: str | StreamType | Mapping[str, str], name: str) -> StreamType:
    return stream_type(name, given) if isinstance(given, Mapping) else find_type(given)


REGISTERED: dict[str, StreamFunction] = {}
"""The functions that are known by their names."""


def register(function: StreamFunction) -> StreamFunction:
    """Make a function known by its name; a later one of the same name takes its place."""
    REGISTERED[function.name] = function
    return function


def name_of(function: object) -> str:
    """The name of a user's function; of a callable object, which has none, that of its class."""
    if isinstance(function, StreamFunction):
        return function.name
    return str(getattr(function, "__name__", type(function).__name__))
