"""Keys as Spark SQL texts: how a key is cast, compared and named where it travels as a column.

Invariant: equal texts mean the same, whatever query they come from, so that queries share stores by comparing them.
"""

from __future__ import annotations

from braidstream.kernels.rows import HASH_OF, VALUE_OF
from braidstream.query import KeyClass, Query

__all__ = ["cast", "comparable", "hash_name", "quoted", "sorted_classes", "value_name"]


def quoted(name: str) -> str:
    """A column's name in Spark SQL, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def sorted_classes(query: Query) -> list[KeyClass]:
    """The key classes in an order that does not depend on how the query is written, so that queries share stores."""
    return sorted(query.key_classes, key=lambda c: sorted((query.input(a).stream, e) for a, e in c.members))


def cast(edge: KeyClass, alias: str) -> str:
    """The key of one input in the type that it is compared in."""
    return f"CAST({edge.expression(alias)} AS {edge.type})"


def comparable(key: str, kind: str) -> str:
    """Nested keys are compared as text: the same in every time zone, and for both zeros, which are equal."""
    if not kind.startswith(("array<", "struct<", "map<")):
        return key
    text = f"to_json(named_struct('k', {key}), map('timeZone', 'UTC'))"
    return f"regexp_replace({text}, '-0[.]0(?![0-9])', '0.0')" if "float" in kind or "double" in kind else text


def hash_name(edge: KeyClass, alias: str) -> str:
    """The column with the hash of a key that a later exchange goes by."""
    return f"{HASH_OF}{cast(edge, alias)}"


def value_name(edge: KeyClass, alias: str) -> str:
    """The column with the value of such a key, for comparison."""
    return f"{VALUE_OF}{cast(edge, alias)}"
