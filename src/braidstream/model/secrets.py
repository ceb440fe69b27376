"""Secrets in options: which they are, where they may come from, and what is written down of them.

A value `env:NAME` stands for the variable NAME of the driver's environment. It is looked up when a sink or a source is
made, and what is written down (manifests, job files) is `env:NAME`. A secret that is given plainly works, too, but is
written down as `(secret)`: a checkpoint never has it.

A secret is an option whose name says so (password, token, ...), the password of an address such as
`postgresql://user:password@host`, and a parameter of one whose name says so. Cost: a few patterns an option.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from braidstream.errors import InputError
from braidstream.hiding import HIDDEN, hide

__all__ = ["ENV", "kept_options", "kept_value", "refuse_hidden", "resolved_options"]

ENV = "env:"
_SAYS = (
    r"pass(?:word|wd|phrase)|\bpwd\b|secret|token|credential|jaas|signature|\bsig\b|authorization"
    r"|(?:api|access|account|private|shared|sas|encryption|keystore)[._-]?key|key\.pem|auth\.user\.info"
)
_NAME = re.compile(_SAYS, re.IGNORECASE)
_USER = re.compile(
    r"(?P<before>[a-z][a-z0-9+.-]*://[^/\s:@]*:)(?P<secret>(?!\d+/)[^\s?#]+|[^/\s@]+)(?=@)", re.IGNORECASE
)
"""Up to the last @: a password may have one, or a slash, that nobody has escaped. Digits and a slash are a port."""
_BEARER = re.compile(r"(?P<before>\b(?:bearer|basic)\s+)(?P<secret>[\w.~+/=-]{6,})", re.IGNORECASE)
_PARAMETER = re.compile(rf"(?P<before>(?:{_SAYS})\w*\s*=\s*)(?P<secret>'[^']*'|\"[^\"]*\"|[^&;\s]+)", re.IGNORECASE)


def resolved_options(options: Mapping[str, str], what: str = "") -> dict[str, str]:
    """Options with values from the environment in their places; every secret among them is hidden from now on."""
    found = {}
    for name, value in options.items():
        found[name] = own = _looked_up(name, value, what) if _is_reference(value) else value
        for secret in _secrets(name, own) if own == value else [own]:
            hide(secret)
    return found


def kept_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options as they may be written down."""
    return {name: kept_value(name, value) for name, value in options.items()}


def kept_value(name: str, value: str) -> str:
    """An option's value without what is secret in it."""
    if not isinstance(value, str) or _is_reference(value):
        return value
    if _NAME.search(name):
        return HIDDEN
    for pattern in (_USER, _PARAMETER, _BEARER):
        value = pattern.sub(rf"\g<before>{HIDDEN}", value)
    return value


def refuse_hidden(options: Mapping[str, str], what: str) -> None:
    """Refuse options that were written down without their secrets."""
    for name, value in options.items():
        if isinstance(value, str) and HIDDEN in value:
            raise InputError(
                f"{what}: {name} was a secret, and secrets are not kept",
                f"{name} as {ENV}NAME, which is looked up in the environment at each start",
                "start once as it was declared; from then on give the secret as env:NAME",
            )


def _is_reference(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(rf"{ENV}\w+", value) is not None


def _looked_up(name: str, value: str, what: str) -> str:
    variable = value.removeprefix(ENV)
    found = os.environ.get(variable)
    if found is None:
        shown = f"{what}: " if what else ""
        raise InputError(
            f"{shown}{name} is {value!r}, and the environment has no {variable}",
            "a variable of the driver's environment",
            f"export {variable}=... before the start",
        )
    return found


def _secrets(name: str, value: str) -> list[str]:
    if not isinstance(value, str) or not value:
        return []
    if _NAME.search(name):
        parts = [value.partition(":")[2]] if "user.info" in name.lower() else []
        return [value, *parts, *(found["secret"].strip("'\"") for found in _PARAMETER.finditer(value))]
    return [
        found["secret"].strip("'\"") for pattern in (_USER, _PARAMETER, _BEARER) for found in pattern.finditer(value)
    ]
