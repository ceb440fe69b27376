"""Calls with wrong arguments, refused in our own words: an unknown keyword with the nearest one, a missing one with how
it is given. A decorator for what users call; the function's own signature is the only list of names.

Cost: one binding of the arguments a call, microseconds.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from braidstream.errors import InputError, nearest

__all__ = ["checked_arguments"]

P = ParamSpec("P")
Result = TypeVar("Result")


def checked_arguments(
    called: str, given: Mapping[str, str], unknown: Mapping[str, str] | None = None
) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Check the arguments of a public function that users know as `called`.

    `given` shows for a required argument how it is given; `unknown` has hints for keywords that people try.
    """

    def decorate(function: Callable[P, Result]) -> Callable[P, Result]:
        signature = inspect.signature(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise _refusal(called, signature, args, kwargs, given, unknown or {}, error) from None
            return function(*args, **kwargs)

        return call

    return decorate


def _refusal(
    called: str,
    signature: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: Mapping[str, object],
    given: Mapping[str, str],
    unknown: Mapping[str, str],
    error: TypeError,
) -> InputError:
    names = [name for name in signature.parameters if name != "self"]
    for name in kwargs:
        if name not in names:
            fix = unknown.get(name) or nearest(name, names)
            return InputError(f"{called} has no argument {name!r}", f"one of {', '.join(names)}", fix)
    by_place = [n for n, p in signature.parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    for name, parameter in signature.parameters.items():
        is_given = name in kwargs or name in by_place[: len(args)]
        if parameter.default is parameter.empty and not is_given:
            fix = given.get(name, f"add {name}=...")
            return InputError(f"{called} without {name!r}", "all that it cannot do without", fix)
    return InputError(f"{called}: {error}", f"the arguments {', '.join(names)}")
