"""Every exception of the package, as one tree.

    BraidstreamError
    ├── InputError              wrong input, found before anything was started      (exit code 2)
    │   ├── QueryError          a query that cannot be parsed or does not fit its streams
    │   ├── StreamError         a stream whose declaration does not fit its DataFrame
    │   ├── TableError          a table that streams cannot be joined with
    │   ├── JobError            a job file
    │   ├── SinkError           a sink or its path
    │   ├── CheckpointMismatch  a checkpoint that belongs to something else
    │   └── CheckpointInUse     a checkpoint that another process has, or another flow of this one
    └── RunError                failed while running; the checkpoint restarts       (exit code 3)
        ├── DamagedState        a manifest or a segment is missing or unreadable
        ├── LeaseLost           another process has taken the checkpoint over
        └── SinkFailed          a sink did not take the results of an epoch

A message has three parts: what was wrong with which value, what was expected, and the likely fix. Each part is a field.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from braidstream.hiding import scrubbed

__all__ = [
    "BraidstreamError",
    "CheckpointInUse",
    "CheckpointMismatch",
    "DamagedState",
    "InputError",
    "JobError",
    "LeaseLost",
    "Note",
    "QueryError",
    "RunError",
    "SinkError",
    "SinkFailed",
    "StreamError",
    "TableError",
    "nearest",
]


class Note(UserWarning):
    """Something that is no error, and that the user should know; commands print it as a note."""


class BraidstreamError(Exception):
    """The root: what was wrong, what was expected, and the likely fix."""

    exit_code = 3
    log = ""
    """The file with the whole stack, where there is one."""

    def __init__(self, wrong: str, expected: str = "", fix: str = "") -> None:
        wrong, expected, fix = scrubbed(wrong), scrubbed(expected), scrubbed(fix)
        self.wrong, self.expected, self.fix = wrong, expected, fix
        parts = [wrong, f"expected: {expected}" if expected else "", f"hint: {fix}" if fix else ""]
        super().__init__("\n  ".join(part for part in parts if part))

    def name_log(self, path: str) -> None:
        """Say where the whole stack of what made it fail is."""
        if not self.log:
            self.log = path
            self.args = (f"{self}\n  stack: {path}",)


class InputError(BraidstreamError):
    """Wrong input; nothing was started."""

    exit_code = 2


class QueryError(InputError):
    """A query that cannot be used. `line` and `column` (from 1) are its place in `text`, where it has one."""

    def __init__(
        self, wrong: str, expected: str = "", fix: str = "", *, text: str = "", line: int = 0, column: int = 0
    ) -> None:
        self.text, self.line, self.column = text, line, column
        super().__init__(wrong + self._marked(), expected, fix)

    def _marked(self) -> str:
        if not self.line:
            return ""
        shown = self.text.splitlines()[self.line - 1]
        return f" (line {self.line}, column {self.column})\n    {shown}\n    {' ' * (self.column - 1)}^"


class StreamError(InputError):
    """A stream whose declaration does not fit its DataFrame."""


class TableError(InputError):
    """A table that streams cannot be joined with."""


class JobError(InputError):
    """A job file that cannot be used."""


class SinkError(InputError):
    """A sink that cannot be used."""


class CheckpointMismatch(InputError):
    """A checkpoint that belongs to another flow, query or schema."""


class CheckpointInUse(InputError):
    """A checkpoint that a running flow has. `owner` says who: process, host, since when."""

    def __init__(self, checkpoint: str, owner: str, process: int, ttl_s: float) -> None:
        self.checkpoint, self.owner, self.process = checkpoint, owner, process
        super().__init__(
            f"the checkpoint {checkpoint} is in use by {owner}",
            "one running job for each checkpoint",
            f"stop process {process} there (kill {process}), or wait for its end with --wait 60s, wait= in Flow.start; "
            f"when it dies, or shows no sign of life for {ttl_s:g} seconds, a start takes over",
        )


class RunError(BraidstreamError):
    """Failed while running; the checkpoint restarts."""


class DamagedState(RunError):
    """A file of the checkpoint is missing or unreadable. `path` names it."""

    def __init__(self, path: str, wrong: str, fix: str = "") -> None:
        self.path = path
        remedy = fix or "restore the file from a copy, or start again with a new checkpoint; nothing was changed"
        super().__init__(f"{path}: {wrong}", "", remedy)


class LeaseLost(RunError):
    """Another process has taken the checkpoint over; this one changes nothing any more."""

    def __init__(self, checkpoint: str, successor: str = "") -> None:
        self.checkpoint, self.successor = checkpoint, successor
        super().__init__(
            f"the checkpoint {checkpoint} was taken over" + (f" by {successor}" if successor else ""),
            "a process that renews its lease; this one was stopped or cut off for too long",
            "let the other one go on: nothing was changed here since, and nothing is lost",
        )


class SinkFailed(RunError):
    """A sink did not take the results of an epoch, or an `expression` of the query could not be computed on them."""

    def __init__(self, query: str, epoch: int, reason: str, expression: str | None = None) -> None:
        self.query, self.epoch, self.expression = query, epoch, expression
        what, repair = (
            ("the sink of query", "repair the sink")
            if expression is None
            else (
                "an expression over the results of query",
                "repair the data or the sink; or write it with try_cast or CASE WHEN, which give NULL for such rows; or"
                ' add bad = { format = "json", path = "bad" } to the query, where such rows then go;',
            )
        )
        kind = "epoch" if epoch >= 0 else "clean-up"
        super().__init__(
            f"{what} {query!r} failed at {kind} {abs(epoch)}: {reason}",
            "",
            f"{repair} and start again with the same checkpoint; the {kind} is delivered again",
        )


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint naming the closest of `names`, or all of them when none is close."""
    known = sorted(names)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if not close:
        folded = {k.lower(): k for k in known}
        close = difflib.get_close_matches(name.lower(), list(folded), n=1, cutoff=0.5)
        close = [folded[c] for c in close]
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
