"""The pre-pass that takes the windows out of a query's text: what is left is SQL.

`FROM X [RANGE 10 MIN], Y AS y [RANGE UNBOUNDED]` becomes the same text with blanks for the brackets, so that every
offset stays what it was, and a list of windows with their places. A bracket is a window when it opens with one of
CQL's window words, or when it stands in FROM, where SQL has no brackets; elsewhere it is an index (`R.points[0]`).

Invariant: the masked text has the length and the line ends of the original. Cost: one pass over the tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import Token, TokenType

from braidstream.query.duration import DurationProblem, measure
from braidstream.query.source import Source

__all__ = ["Window", "take_windows"]

_WORDS = {"RANGE", "ROWS", "NOW", "UNBOUNDED", "PARTITION"}
_EXPECTED = "[RANGE n unit] or [RANGE UNBOUNDED]"
_EXAMPLE = "write [RANGE 10 SECONDS]"
_LEAVES_FROM = {"WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "UNION", "INTERSECT", "EXCEPT", "SELECT"}


@dataclass(frozen=True)
class Window:
    """A window as written: where it stands, and its length (None is unbounded)."""

    start: int
    length_us: int | None


def take_windows(source: Source) -> tuple[str, tuple[Window, ...]]:
    """The text with blanks for windows, and the windows in the order of the text."""
    masked, windows = source.text, []
    for opening in _openings(source.tokens):
        content_end = source.code.find("]", opening.end)
        if content_end < 0:
            raise source.error(opening.start, "the window is not closed", _EXPECTED, "add ]")
        windows.append(Window(opening.start, _length(source, opening.end + 1, content_end)))
        masked = _blank(masked, opening.start, content_end + 1)
    return masked, tuple(windows)


def _openings(tokens: tuple[Token, ...]) -> Iterator[Token]:
    """The brackets that open a window."""
    clause, depth = "", 0
    for before, token, after, then in _neighbours(tokens):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if depth == 0 and before not in (".", "DISTINCT"):  # `R.from` is a name, IS DISTINCT FROM a comparison
            clause = _next_clause(clause, token.text.upper())
        if token.token_type == TokenType.L_BRACKET and (
            (clause == "FROM" and depth == 0) or (after in _WORDS and then != "]")  # prices[range] is an index
        ):
            yield token


def _neighbours(tokens: tuple[Token, ...]) -> Iterator[tuple[str, Token, str, str]]:
    """Each token with the words before it, after it and after that."""
    words = ["", *(token.text.upper() for token in tokens), "", ""]
    return zip(words, tokens, words[2:], words[3:], strict=False)


def _next_clause(clause: str, word: str) -> str:
    """FROM, or ON inside it, or nothing; `clause` is where the token before stood."""
    if word in _LEAVES_FROM:
        return ""
    if word == "FROM" or (clause == "ON" and word in ("JOIN", ",")):
        return "FROM"
    return "ON" if clause == "FROM" and word == "ON" else clause


def _length(source: Source, begin: int, end: int) -> int | None:
    """The length of the window whose brackets hold the text from `begin` to `end`."""
    content = source.code[begin:end]
    _refuse_other_windows(source, begin, content)
    head = re.match(r"\s*RANGE\b\s*", content, re.IGNORECASE)
    if not head:
        raise source.error(_first(content, begin), "the window does not begin with RANGE", _EXPECTED, _EXAMPLE)
    rest = content[head.end() :]
    if rest.strip().upper() == "UNBOUNDED":
        return None
    if rest.strip().upper() == "NOW":
        return 0
    return _measured(source, begin + head.end(), rest)


def _refuse_other_windows(source: Source, begin: int, content: str) -> None:
    rows = re.match(r"\s*(PARTITION\b.*)?ROWS\b", content, re.IGNORECASE | re.DOTALL)
    if rows:
        wrong = "windows of a number of rows are not supported"
        raise source.error(_first(content, begin), wrong, "a window of time, " + _EXPECTED, _EXAMPLE)
    slide = re.search(r"\bSLIDE\b", content, re.IGNORECASE)
    if slide:
        wrong = "SLIDE is not supported: windows slide with every tuple"
        raise source.error(begin + slide.start(), wrong, _EXPECTED, "leave SLIDE out")


def _measured(source: Source, begin: int, text: str) -> int:
    try:
        return measure(text)
    except DurationProblem as problem:
        at = begin + (problem.offset if text.strip() else len(text))
        raise source.error(at, f"window: {problem.wrong}", _EXPECTED, problem.fix) from None


def _first(content: str, begin: int) -> int:
    return begin + len(content) - len(content.lstrip())


def _blank(text: str, start: int, end: int) -> str:
    return text[:start] + re.sub(r"[^\r\n]", " ", text[start:end]) + text[end:]
