"""The text of a query with its tokens: where things stand in it, so that every error can point at its place.

The parser keeps offsets on names and literals only. A place for anything else (a function, a clause) is found from the
tokens, which is why they are kept next to the text.

Invariant: offsets count characters of the user's text, also after the windows were blanked out of it.
Cost: tokenizing once; a place is found by a scan, only when there is an error to report.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError

from braidstream.errors import QueryError, nearest

__all__ = ["DIALECT", "FORM", "Source", "bare_sql", "sql_of"]

DIALECT = "spark"
_JOIN_WORDS = ("OUTER", "SEMI", "ANTI", "LEFT")
"""What may stand between LEFT, RIGHT, FULL or ASOF and JOIN."""
FORM = "SELECT ... FROM R [RANGE 10 SECONDS], S [RANGE 10 SECONDS] WHERE R.k = S.k"


def sql_of(node: exp.Expr) -> str:
    """Canonical Spark SQL of a resolved expression."""
    return node.sql(DIALECT, comments=False, unsupported_level=ErrorLevel.IGNORE)


def bare_sql(node: exp.Expr) -> str:
    """The same with unqualified column names: for an expression over one stream."""
    copy = node.copy()
    for column in copy.find_all(exp.Column):
        column.set("table", None)
    return sql_of(copy)


@dataclass(frozen=True)
class Source:
    """A query's text and the tokens in it."""

    text: str
    tokens: tuple[Token, ...]

    @classmethod
    def of(cls, text: str) -> Source:
        """Tokenize; an unclosed quote or an empty text is an error already."""
        try:
            tokens = tuple(sqlglot.tokenize(text, dialect=DIALECT))
        except TokenError:
            raise _unclosed(text) from None
        if all(token.token_type == TokenType.SEMICOLON for token in tokens):
            raise QueryError("the query is empty", FORM, "write a query, or remove the entry")
        return cls(text, tokens)

    def parse(self, masked: str) -> exp.Expr:
        """The one statement of `masked`, the text with blanks where the windows were."""
        try:
            statements = [one for one in sqlglot.parse(masked, dialect=DIALECT) if one is not None]
        except ParseError as error:
            raise self._unreadable(error) from None
        except RecursionError:
            raise self.error(0, "the query is nested too deeply", FORM, "compute parts of it in the streams") from None
        if len(statements) != 1 or type(statements[0]).__name__ == "Block":
            at = self.keyword(TokenType.SEMICOLON)
            raise self.error(at, "the text holds more than one statement", "one SELECT", "write one query for each")
        return statements[0]

    @cached_property
    def code(self) -> str:
        """The text with blanks for comments: what lies between two tokens is never code."""
        blank = re.sub(r"[^\r\n]", " ", self.text)
        pieces, end = [], 0
        for token in self.tokens:
            pieces += [blank[end : token.start], self.text[max(end, token.start) : token.end + 1]]
            end = token.end + 1
        return "".join(pieces) + blank[end:]

    def error(self, offset: int, wrong: str, expected: str = "", fix: str = "") -> QueryError:
        """A QueryError at that place."""
        line, column = self.place(offset)
        return QueryError(wrong, expected, fix, text=self.text, line=line, column=column)

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 1; an offset past the end means the last character."""
        last = len(self.text.rstrip()) - 1
        lines = (self.text[: max(0, min(offset, last))] + ".").splitlines()
        return len(lines), len(lines[-1])

    def start(self, node: exp.Expr) -> int:
        """The offset at which an expression begins, as far as the parser kept it (0 if not at all)."""
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        first = min(starts, default=-1)
        if isinstance(node, exp.Func):
            return self._call_before(_function_names(node), first)
        return max(first, 0)

    def keyword(self, *types: TokenType, words: tuple[str, ...] = ()) -> int:
        """The offset of the first keyword of those types or words; 0 if there is none."""
        for before, token in self._pairs():
            is_name = before is not None and before.token_type == TokenType.DOT
            if not is_name and (token.token_type in types or token.text.upper() in words):
                return token.start
        return 0

    def star(self) -> int:
        """The offset of the first `*` that is a select item and no multiplication."""
        for before, token in self._pairs():
            if token.token_type == TokenType.STAR and before and before.text.upper() in ("SELECT", "ALL", ","):
                return token.start
        return self.keyword(TokenType.STAR)

    def _pairs(self) -> Iterator[tuple[Token | None, Token]]:
        return zip((None, *self.tokens), self.tokens, strict=False)

    def _call_before(self, names: set[str], offset: int) -> int:
        """The name of the innermost call of one of `names` that opens before `offset` (anywhere, if that is -1)."""
        calls = [
            token.start
            for token, after in zip(self.tokens, self.tokens[1:], strict=False)
            if after.token_type == TokenType.L_PAREN and token.text.upper() in names
        ]
        before = [start for start in calls if start < offset]
        if offset < 0:
            return calls[0] if calls else 0
        return before[-1] if before else offset

    def _unreadable(self, error: ParseError) -> QueryError:
        found = error.errors[0]
        highlight, description = str(found["highlight"]), str(found["description"])
        end = _offset(self.text, int(found["line"] or 1), int(found["col"] or 1))
        missing = re.match(r"Expecting (\S+)", description)
        wrong = f"cannot read the query at {highlight!r}" + (f": {missing[1]!r} is missing" if missing else "")
        fix = self._misspelt() or "check commas, brackets and quotes just before the mark"
        return self.error(end - len(highlight) + 1, wrong, FORM, fix)

    def _misspelt(self) -> str:
        """A word before JOIN that is none of those that stand there; empty where there is none."""
        for side, word in re.findall(r"\b(LEFT|RIGHT|FULL|ASOF)\s+(\w+)\s+JOIN\b", self.text, re.IGNORECASE):
            if word.upper() not in _JOIN_WORDS:
                return f"{side} {word} JOIN: {nearest(word.upper(), _JOIN_WORDS)}"
        return ""


def _function_names(node: exp.Func) -> set[str]:
    own = {node.name.upper()} if isinstance(node, exp.Anonymous) else {name.upper() for name in node.sql_names()}
    return own | {sql_of(node).split("(")[0].upper()}


def _offset(text: str, line: int, column: int) -> int:
    lines = text.splitlines(keepends=True)
    return sum(len(one) for one in lines[: line - 1]) + column - 1


def _unclosed(text: str) -> QueryError:
    """The tokenizer stops at a quote or a comment that never ends, but does not tell where it was opened."""
    at, mark = _opening(text)
    closing = "*/" if mark == "/*" else mark
    what = {"/*": "a comment", "`": "a quoted name"}.get(mark, "a text in quotes")
    return Source(text, ()).error(at, f"{what} is not closed", f"a closing {closing}", f"add {closing}")


def _opening(text: str) -> tuple[int, str]:
    """The first quote or comment that is not closed: what is left when all closed ones are blanked."""
    closed = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)
    blanked = closed.sub(lambda found: " " * len(found[0]), text)
    found = re.search(r"""['"`]|/\*""", blanked)
    return (found.start(), found[0]) if found else (len(text), "quote")
