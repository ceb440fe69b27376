"""Queries as a program declared them, in a form that a manifest keeps: what later declarations are compared with.

Values; nothing here decides (`query.evolution` does). Size: that of the texts.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from braidstream.model.secrets import kept_options
from braidstream.model.values import Value

__all__ = ["FILE_FORMATS", "Declared", "Target", "kept"]

FILE_FORMATS = ("parquet", "json", "csv", "orc", "text", "xml", "avro")
"""Those of which an output is a folder of files, which the engine itself takes back."""


class Target(Value, frozen=True):
    """Where something goes, as far as it can be written down: of a function (`to` is None) only that it is one."""

    to: str | None = None
    path: str | None = None
    options: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder of files."""
        return (self.to or "").lower() in FILE_FORMATS

    def __str__(self) -> str:
        if self.to is None:
            return "a function"
        if self.path is None:
            return self.to
        return f"{self.to} files in {self.path}" if self.is_folder else f"{self.to} in {self.path}"


class Declared(Value, frozen=True):
    """A query as a program declared it. Without a text, one of which only the fingerprint was kept."""

    fingerprint: str
    text: str = ""
    sink: Target | None = None
    late: Target | None = None
    recovered: bool = False
    since: int = -1
    """The last epoch before it was added; -1: it was there from the beginning."""
    bad: Target | None = None
    """Where rows go of which an expression fails."""

    def is_same(self, other: Declared) -> bool:
        """Whether it is the same query, wherever its results go."""
        return self.fingerprint == other.fingerprint or bool(self.text and self.text == other.text)

    def goes_elsewhere(self, other: Declared) -> bool:
        """Whether it is known that something of it goes elsewhere, or results say other things of themselves."""
        if self.sink is None or other.sink is None:
            return False
        ways = ((one.sink, one.late, one.bad) for one in (self, other))
        before, after = (tuple(map(kept, way)) for way in ways)
        return before != after or self.recovered != other.recovered


def kept(target: Target | None) -> Target | None:
    """Where something goes, without secrets; versions before 0.2.0 wrote them down."""
    return None if target is None else Target(target.to, target.path, kept_options(target.options))
