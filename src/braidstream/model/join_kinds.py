"""The kinds of joins of two streams: what each puts out, and when.

    inner       every match
    left        every match, and the rows of the first stream that have none, with NULLs for the second
    right       the same for the rows of the second stream
    full        the same for both
    semi        the rows of the first stream that have a match: once, at the first
    anti        the rows of the first stream that have none
    asof        each row of the first stream with the newest row of the second that is not newer than it
    asof_left   the same, and the rows of the first stream that have none, with NULLs

A row *closes* when the watermark passes the last time at which a partner could come: nothing that comes later matches
it, and what it has met until then is all. Rows without a match, and all rows of an as-of join, are put out then.

Inputs are numbered as they stand in FROM.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["JoinKind"]


class JoinKind(str, Enum):
    """What a join puts out."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"
    ASOF = "asof"
    ASOF_LEFT = "asof_left"

    @property
    def composes(self) -> bool:
        """Whether every match is a result."""
        return self in (JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL)

    @property
    def is_asof(self) -> bool:
        """Whether a row has one partner at most, the newest."""
        return self in (JoinKind.ASOF, JoinKind.ASOF_LEFT)

    @property
    def kept(self) -> tuple[int, ...]:
        """The inputs whose rows are put out if they have no match."""
        both = {JoinKind.RIGHT: (1,), JoinKind.FULL: (0, 1)}
        first = (JoinKind.LEFT, JoinKind.ANTI, JoinKind.ASOF_LEFT)
        return both.get(self, (0,) if self in first else ())

    @property
    def closed(self) -> tuple[int, ...]:
        """The inputs of which something is put out when a row closes."""
        return (0,) if self.is_asof else self.kept

    @property
    def shown(self) -> tuple[int, ...]:
        """The inputs that have columns in the result."""
        return (0,) if self in (JoinKind.SEMI, JoinKind.ANTI) else (0, 1)

    @property
    def whole(self) -> tuple[int, ...]:
        """The inputs that never have NULLs in the place of a row: what filters results by them may filter rows."""
        found = {JoinKind.INNER: (0, 1), JoinKind.RIGHT: (1,), JoinKind.FULL: ()}
        return found.get(self, (0,))

    @property
    def droppable(self) -> tuple[int, ...]:
        """The inputs of which rows may be dropped, and results are missing then, but none is wrong.

        Not partners of what is kept: a row would be put out as one without a match, or twice, or with an older partner.
        """
        found = {JoinKind.INNER: (0, 1), JoinKind.RIGHT: (1,), JoinKind.FULL: ()}
        return found.get(self, (0,))

    @property
    def words(self) -> str:
        """As CQL writes it."""
        if self is JoinKind.INNER:
            return "JOIN"
        names = {JoinKind.ASOF_LEFT: "ASOF LEFT", JoinKind.SEMI: "LEFT SEMI", JoinKind.ANTI: "LEFT ANTI"}
        return f"{names.get(self, self.name)} JOIN"
