"""An option: one field of a dataclass, with its kind and range, its default, an example, and what it does.

    @dataclass(frozen=True)
    class Budget(Checked):
        spill_share: float = option(Number(above=0, most=1), 0.3, 0.2, "The share of a slot's state that is pushed")

A dataclass of options is checked when it is made, whoever makes it: each option, then what does not go together
(`check_together`). What is refused names the option: `spill_share is 2`, what was expected, and how it is written.

Invariant: a value of a `Checked` class has only values that its options accept. Cost: microseconds an option.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any, TypeVar

from braidstream.errors import InputError, nearest
from braidstream.options.kinds import Kind

__all__ = ["Checked", "Option", "chosen", "option", "options_of", "shown"]

_KEY = "option"
Form = TypeVar("Form")
Self = TypeVar("Self", bound="Checked")


@dataclass(frozen=True)
class Option:
    """What is known of an option."""

    name: str
    kind: Kind
    default: Any
    """`MISSING` where it must be given."""
    example: Any
    doc: str
    unset: str = ""
    """What happens without it, where that is more than a value."""
    job: bool = True
    """Whether a job file may have it."""

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is MISSING

    @property
    def written(self) -> str:
        """How it is written."""
        return f"{self.name} = {shown(self.example)}"

    def check(self, value: Any) -> None:
        """Refuse a value that it cannot have; None stands for an option that is not given, where it need not be."""
        if value is None and self.default is None:
            return
        if problem := self.kind.problem(value):
            wrong, expected, fix = problem
            raise InputError(f"{self.name}{wrong}", expected, fix or f"write {self.written}")


def option(kind: Kind, default: Any, example: Any, doc: str, *, unset: str = "", job: bool = True) -> Any:
    """A field of a dataclass that is an option; without a default (`MISSING`) it must be given."""
    known = {_KEY: (kind, example, doc, unset, job)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=known)
    return dataclasses.field(default=default, metadata=known)


def options_of(form: type) -> dict[str, Option]:
    """The options of a dataclass, by name."""
    found = {}
    for field in dataclasses.fields(form):
        if _KEY in field.metadata:
            kind, example, doc, unset, job = field.metadata[_KEY]
            default = {} if field.default_factory is not MISSING else field.default
            found[field.name] = Option(field.name, kind, default, example, doc, unset, job)
    return found


class Checked:
    """A dataclass of options: what is wrong is refused when it is made."""

    def __new__(cls: type[Self], *_given: Any, **named: Any) -> Self:
        """Refuse a name that no option has, before Python does."""
        known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]  # its subclasses are
        for name in named:
            if name not in known:
                wrong, expected = f"{cls.__name__} has no option {name!r}", f"one of {', '.join(known)}"
                raise InputError(wrong, expected, nearest(name, known))
        return super().__new__(cls)

    def __post_init__(self) -> None:
        values = vars(self)
        for name, known in options_of(type(self)).items():
            known.check(values[name])
        self.check_together()

    def check_together(self) -> None:
        """Refuse values that do not go together. Each of them is right by itself."""


def chosen(form: type[Form], given: Mapping[str, object]) -> Form:
    """A dataclass of options, from those of the given values that are its own."""
    return form(**{name: given[name] for name in options_of(form)})


def shown(value: Any) -> str:
    """A value as a job file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"""{value}"""' if '"' in value else f'"{value}"'
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{name} = {shown(one)}' for name, one in value.items())} }}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(shown, value))}]"
    return str(value)
