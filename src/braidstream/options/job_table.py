"""Reads a table of a job file into a dataclass of options.

Invariant: nothing is ignored. An option that the form does not have, one that is missing, and one that cannot be are
refused with the file, the place and the option's own words; so is what does not go together. Cost: none to speak of.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from braidstream.errors import InputError, JobError, nearest
from braidstream.options.kinds import Inner, Kind, Words
from braidstream.options.option import Option, options_of

__all__ = ["JobTable", "shown_value", "text_of", "texts_of"]

Form = TypeVar("Form")
_NAME = re.compile(r"[A-Za-z_]\w*$")
_TABLES = {
    "flow": ("a [flow] table with a checkpoint", 'add [flow] and checkpoint = "ck"'),
    "streams": ("a table [streams.NAME] for each stream", "add [streams.R] with format, path, schema and time"),
    "tables": ("a table [tables.NAME] for each table", "add [tables.customers] with format and path"),
    "queries": ("a table [queries.NAME] for each query", "add [queries.pairs] with cql and sink"),
}


@dataclass(frozen=True)
class JobTable:
    """A table of the file, its place in it, and how its options become a value of the form."""

    file: str
    place: str
    values: Mapping[str, object]

    def read(self, form: type[Form], **defaults: Any) -> Form:
        """The table as a dataclass of options."""
        known = {name: one for name, one in options_of(form).items() if one.job}
        self.refuse_unknown(known, "option")
        for name, one in known.items():
            if one.is_required and name not in self.values:
                raise self.error(name, "is missing", one.kind.expected, f"add {one.written}")
        values = {name: self._value(known[name]) for name in self.values}
        try:
            return form(**{**defaults, **values})
        except InputError as error:
            raise JobError(f"{self.file}: [{self.place}] {error.wrong}", error.expected, error.fix) from None

    def table(self, name: str) -> JobTable:
        """A table inside this one."""
        if name not in self.values:
            raise JobError(f"{self.file}: the table [{self.within(name)}] is missing", *_TABLES[name])
        inner = self.values[name]
        if not isinstance(inner, Mapping):
            raise self.error(name, f"is {inner!r}", "a table")
        return JobTable(self.file, self.within(name), inner)

    def tables(self, name: str) -> Sequence[tuple[str, JobTable]]:
        """The named tables inside a table: at least one."""
        outer = self.table(name)
        if not outer.values:
            raise JobError(f"{self.file}: the table [{name}] is empty", *_TABLES[name])
        for one in outer.values:
            if not _NAME.match(one):
                raise JobError(f"{self.file}: [{name}.{one}]: not a name", "letters, digits and underscores")
        return [(one, outer.table(one)) for one in outer.values]

    def refuse_unknown(self, known: Iterable[str], what: str) -> None:
        """Nothing is ignored."""
        names = list(known)
        for name in self.values:
            if name not in names:
                place = f"[{self.place}] {name}" if self.place else f"[{name}]"
                raise JobError(
                    f"{self.file}: unknown {what} {place}", f"one of {', '.join(names)}", nearest(name, names)
                )

    def error(self, name: str, wrong: str, expected: str, fix: str = "") -> JobError:
        """An error about one option."""
        place = f"[{self.place}] {name}" if self.place else f"[{name}]"
        return JobError(f"{self.file}: {place} {wrong}", expected, fix)

    def within(self, name: str) -> str:
        """The place of something in this table."""
        return f"{self.place}.{name}" if self.place else name

    def _value(self, known: Option) -> Any:
        value, kind = self.values[known.name], known.kind
        if isinstance(value, Mapping) and isinstance(kind, Inner):
            return self.table(known.name).read(kind.form)
        if isinstance(value, Mapping) and isinstance(kind, Words):
            return self._texts(known.name)
        self._check_form(known, kind, value)
        return tuple(value) if isinstance(value, list) else value

    def _check_form(self, known: Option, kind: Kind, value: Any) -> None:
        """A file says a length with its unit, and true in its own way."""
        is_plain = value is not None and kind.is_plain(value)
        if is_plain and not (isinstance(value, bool) and kind.problem(value)):
            return
        raise self.error(known.name, f"is {shown_value(value)}", kind.expected, f"write {known.written}")

    def _texts(self, name: str) -> dict[str, str]:
        inner = self.table(name)
        for key, value in inner.values.items():
            if key == "path":
                raise inner.error(key, "is among the options", "the path beside them", f'write path = "{value}"')
            is_list = isinstance(value, list) and all(isinstance(one, str) for one in value)
            if not isinstance(value, (str, int, float)) and not is_list:
                raise inner.error(key, f"is {shown_value(value)}", "a text, a list of texts, a number, true or false")
        return {key: text_of(value) for key, value in inner.values.items()}


def text_of(value: object) -> str:
    """A value as a text, as Spark takes it."""
    return str(value).lower() if isinstance(value, bool) else _text(value)


def texts_of(options: Mapping[str, object]) -> dict[str, str]:
    """What a call gave as options, as texts."""
    return {name: _text(value) for name, value in options.items()}


def _text(value: object) -> str:
    """Several values are a list in JSON."""
    return json.dumps([str(one) for one in value]) if isinstance(value, (list, tuple)) else str(value)


def shown_value(value: Any) -> str:
    """A wrong value as the file has it."""
    return text_of(value) if isinstance(value, bool) else repr(value)
