"""Stream functions by name: one that was registered, one of ours, or any that a module has.

Invariant: a name means the same on every node; modules are imported on first use. Cost: an import.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from braidstream.errors import InputError, nearest
from braidstream.functions.function import REGISTERED, StreamFunction, name_of

__all__ = ["find_callable", "find_function"]

_OF_FFT = ("fft3", "slow_fft3")
"""Functions of ours, which are registered once they are asked for."""


def find_function(name: str | StreamFunction | Callable[..., Any]) -> StreamFunction:
    """A function by its registered name, or by `module:function`."""
    if isinstance(name, StreamFunction):
        return name
    if not isinstance(name, str):
        shown = name_of(name)
        fix = f"@stream_function(gives=...) above {shown}"
        raise InputError(f"{shown} does not say what it gives", "a stream function", fix)
    if ":" in name:
        return _imported(name)
    if name in _OF_FFT:
        importlib.import_module("braidstream.functions.fft")
    if name not in REGISTERED:
        raise InputError(
            f"there is no function {name!r}", "a registered name, or module:function", nearest(name, REGISTERED)
        )
    return REGISTERED[name]


def _imported(address: str) -> StreamFunction:
    found = find_callable(address)
    if not isinstance(found, StreamFunction):
        raise InputError(
            f"{address} is no stream function", "a callable that says what it gives", "@stream_function(gives=...)"
        )
    return found


def find_callable(address: str) -> Any:
    """What `module:name` names: also a function that splits or combines."""
    module_name, _, attribute = address.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise InputError(f"{address}: {error}", "module:function", "is the module on the Python path?") from None
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise InputError(
            f"{module_name} has no {attribute!r}", "module:function", nearest(attribute, _callables(module))
        ) from None


def _callables(module: Any) -> list[str]:
    return [
        n
        for n, v in vars(module).items()
        if not n.startswith("_") and (inspect.isfunction(v) or isinstance(v, StreamFunction))
    ]
