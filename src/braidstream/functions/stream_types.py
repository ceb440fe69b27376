"""Stream types: a name for the fields of a stream's elements, declared once (GSDM 3.1's create_stream_type).

    declare_type("RADIOSIGNAL", ts="timestamp", x="vector of complex", y="vector of complex", z="vector of complex")

A kind is `timestamp`, a scalar (`int`, `float`, `float32`, `complex`, `complex64`, `bool`, `text`), or a vector of one
of the numbers, with or without a length: `vector of float`, `vector[1024] of complex`. A stream of samples has scalars;
its windows have vectors (`windowed`).

Invariant: a type is a value; declaring a name again with other fields is refused. Cost: none on the data path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from braidstream.errors import InputError, nearest

__all__ = ["Field", "Kind", "StreamType", "declare_type", "find_type", "stream_type"]

NUMBERS = {"int": "int64", "float": "float64", "float32": "float32", "complex": "complex128", "complex64": "complex64"}
"""The NumPy type of each kind of number."""
SCALARS = {**NUMBERS, "bool": "bool", "text": "str"}
ALIASES = {
    "timeval": "timestamp",
    "double": "float",
    "real": "float",
    "long": "int",
    "integer": "int",
    "string": "text",
}
_VECTOR = re.compile(r"vector\s*(?:\[\s*(\d+)\s*\])?\s+of\s+(\w+)$")
_NAME = re.compile(r"[A-Za-z_]\w*$")


@dataclass(frozen=True)
class Kind:
    """What a field holds: a word for the element, whether it is a vector, and its length where that is declared."""

    word: str
    is_vector: bool = False
    size: int | None = None

    @classmethod
    def parse(cls, text: str) -> Kind:
        """Read `vector[1024] of complex` and the like."""
        plain = " ".join(text.lower().split())
        if match := _VECTOR.match(plain):
            word = ALIASES.get(match[2], match[2])
            if word in NUMBERS:
                return cls(word, True, None if match[1] is None else int(match[1]))
            raise InputError(f"there are no vectors of {match[2]!r}", f"vectors of {', '.join(NUMBERS)}")
        word = ALIASES.get(plain, plain)
        if word != "timestamp" and word not in SCALARS:
            known = ["timestamp", *SCALARS, *(f"vector of {number}" for number in NUMBERS)]
            raise InputError(f"{text!r} is no kind of field", f"one of {', '.join(known)}", nearest(text, known))
        return cls(word)

    @property
    def dtype(self) -> str:
        """The NumPy type of an element."""
        return SCALARS[self.word]

    def accepts(self, other: Kind) -> bool:
        """Whether a value of kind `other` can be used where this kind is declared."""
        same = self.word == other.word and self.is_vector == other.is_vector
        return same and (self.size is None or other.size is None or self.size == other.size)

    def __str__(self) -> str:
        if not self.is_vector:
            return self.word
        return f"vector of {self.word}" if self.size is None else f"vector[{self.size}] of {self.word}"


@dataclass(frozen=True)
class Field:
    """A named field."""

    name: str
    kind: Kind


@dataclass(frozen=True)
class StreamType:
    """A named type of stream elements."""

    name: str
    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        names = [field.name for field in self.fields]
        for name in names:
            if not _NAME.match(name):
                raise InputError(
                    f"type {self.name!r}: a field cannot be named {name!r}", "letters, digits, underscores"
                )
            if names.count(name) > 1:
                raise InputError(f"type {self.name!r} has the field {name!r} twice", "each field once")
        if sum(field.kind.word == "timestamp" for field in self.fields) > 1:
            raise InputError(f"type {self.name!r} has several time stamps", "at most one: the time of the stream")

    @property
    def time(self) -> str | None:
        """The name of the time stamp, if the type has one."""
        return next((field.name for field in self.fields if field.kind.word == "timestamp"), None)

    @property
    def values(self) -> tuple[Field, ...]:
        """The fields other than the time stamp."""
        return tuple(field for field in self.fields if field.kind.word != "timestamp")

    def kind(self, name: str) -> Kind | None:
        """The kind of a field; None when there is no such field."""
        return next((field.kind for field in self.fields if field.name == name), None)

    def windowed(self, size: int) -> StreamType:
        """The type of windows of `size` elements: each number becomes a vector."""
        made = []
        for field in self.values:
            if field.kind.word not in NUMBERS:
                raise InputError(
                    f"type {self.name!r}: windows cannot be formed of {field.name!r}, which is {field.kind}",
                    f"numbers: {', '.join(NUMBERS)}",
                    "leave the field out of the stream's type",
                )
            kind = field.kind if field.kind.is_vector else Kind(field.kind.word, True, size)
            made.append(Field(field.name, kind))
        times = tuple(field for field in self.fields if field.kind.word == "timestamp")
        return StreamType(self.name, (*times, *made))

    def refuse_misfit(self, given: StreamType, taker: str, giver: str) -> None:
        """Refuse `given`, what `giver` has, when it lacks a field that `taker` declares, or has it of another kind."""
        known = [field.name for field in given.fields]
        for field in self.values:
            kind = given.kind(field.name)
            if kind is None:
                wrong = f"{taker} takes the type {self.name!r} with a field {field.name!r}; {giver} has none"
                raise InputError(wrong, f"{field.name}: {field.kind}", nearest(field.name, known))
            if not field.kind.accepts(kind):
                raise InputError(
                    f"field {field.name!r} of {giver} is {kind}, but {taker} takes the type {self.name!r}",
                    f"{field.name}: {field.kind}",
                    "declare the same kind on both sides",
                )

    def describe(self) -> str:
        """Name and fields."""
        return f"{self.name}({', '.join(f'{field.name}: {field.kind}' for field in self.fields)})"


_DECLARED: dict[str, StreamType] = {}


def stream_type(name: str, fields: Mapping[str, str] | None = None, **more: str) -> StreamType:
    """A type that is not registered by its name."""
    entries = {**(fields or {}), **more}
    if not entries:
        raise InputError(f"type {name!r} has no fields", "at least one", 'x="vector of complex"')
    return StreamType(name, tuple(Field(field, Kind.parse(kind)) for field, kind in entries.items()))


def declare_type(name: str, fields: Mapping[str, str] | None = None, **more: str) -> StreamType:
    """Declare a type by its name, for streams, functions and job files to use."""
    made = stream_type(name, fields, **more)
    if _DECLARED.setdefault(name, made) != made:
        wrong = f"type {name!r} is already declared as {_DECLARED[name].describe()}"
        raise InputError(wrong, "one declaration for a name", "choose another name")
    return made


def find_type(name: str | StreamType) -> StreamType:
    """A declared type by its name."""
    if isinstance(name, StreamType):
        return name
    if name not in _DECLARED:
        raise InputError(f"there is no type {name!r}", "a declared type", nearest(name, _DECLARED))
    return _DECLARED[name]
