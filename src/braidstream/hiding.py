"""Texts without secrets: what this process was told is secret is taken out of all that it says and writes down.

`hide` is told of a value once; `scrubbed` takes every such value out of a text. Messages of the package's errors, the
log of a failure and what commands print go through it. Cost: a search for each secret.
"""

from __future__ import annotations

import json
from urllib.parse import quote, unquote

__all__ = ["HIDDEN", "hide", "scrubbed"]

HIDDEN = "(secret)"
_SHORT = 3
"""A shorter text is no secret that could be told from other words."""
_KNOWN: dict[str, None] = {}


def hide(value: str) -> None:
    """From now on this text is a secret, also as a URL, JSON or Python writes it."""
    for one in (value, unquote(value), quote(value), quote(value, safe=""), json.dumps(value)[1:-1], repr(value)[1:-1]):
        if len(one) >= _SHORT and one != HIDDEN:
            _KNOWN[one] = None


def scrubbed(text: str) -> str:
    """The text without secrets."""
    for one in sorted(_KNOWN, key=len, reverse=True):
        text = text.replace(one, HIDDEN)
    return text
