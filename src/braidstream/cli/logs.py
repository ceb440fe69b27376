"""`--log-format json`: what a run has to say as JSON, an object a line on the error output, for who collects logs.

Every line has `at`, `level`, `logger`, `message` and `flow`; `epoch`, `query` and `slot` where they apply, and the
figures of an epoch beside them. Where the page and the metrics are, and the error that ends a run, are lines too; of a
job file that cannot be read `flow` is its path. Only what is wrong with the command line itself, and a defect of braid,
is plain text.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import typer

from braidstream.cli.quiet_session import error_console
from braidstream.cli.readings import reading
from braidstream.errors import BraidstreamError, InputError
from braidstream.hiding import scrubbed
from braidstream.model.instructions import Move, RemoveSlot, Split

if TYPE_CHECKING:
    from braidstream.cli.follow import Run
    from braidstream.epoch.progress import EpochProgress
    from braidstream.model.instructions import Decision

__all__ = ["JsonLines", "LogView", "logging_as"]

FORMATS = ("text", "json")
_FIELDS = ("epoch", "query", "slot")
_log = logging.getLogger("braidstream.run")


class JsonLines(logging.Formatter):
    """A record as a line of JSON."""

    def __init__(self, flow: str) -> None:
        super().__init__()
        self._flow = flow

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        at = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        plain: dict[str, Any] = {
            "at": at, "level": record.levelname.lower(), "logger": record.name,
            "message": scrubbed(record.getMessage()), "flow": self._flow,
        }  # fmt: skip
        plain |= {name: vars(record)[name] for name in _FIELDS if vars(record).get(name) is not None}
        plain |= vars(record).get("figures") or {}
        if record.exc_info:
            plain["stack"] = scrubbed(self.formatException(record.exc_info))
        return json.dumps(plain, default=str)


@contextmanager
def logging_as(form: str, flow: str) -> Iterator[Callable[[str], None]]:
    """While it lasts, what is logged goes to the error output, as JSON if that is asked for; gives who says things."""
    if form not in FORMATS:
        raise InputError(f"--log-format {form}", " or ".join(FORMATS), "--log-format json")
    if form == "text":
        yield error_console().print
        return
    with _json_lines(flow):
        try:
            yield lambda text: _log.info("%s", text)
        except BraidstreamError as error:
            _log.error("%s", error)
            raise typer.Exit(error.exit_code) from None


@contextmanager
def _json_lines(flow: str) -> Iterator[None]:
    logger, handler = logging.getLogger("braidstream"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(flow))
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


class LogView:
    """Logs a run."""

    def phase(self, text: str) -> None:
        """What is being done."""
        _log.info("%s", text)

    def begin(self, run: Run) -> None:
        """It runs."""
        _log.info("running", extra={"figures": {"delays": run.delays} if run.delays else {}})

    def epoch(self, entry: EpochProgress) -> None:
        """The epoch, and the results of each query."""
        shown = reading(entry)
        figures = {
            "rows": sum(entry.rows.values()), "late": sum(entry.late.values()), "seconds": entry.seconds["total"],
            "state_bytes": entry.state_bytes, "watermark": entry.watermark,
        }  # fmt: skip
        _log.info("%s committed", shown.title, extra={"epoch": entry.epoch, "figures": figures})
        for query, n in shown.results.items():
            told = {"epoch": entry.epoch, "query": query, "figures": {shown.word[1]: n}}
            _log.info("%s %s", f"{n:,}", shown.word[n != 1], extra=told)

    def decision(self, decision: Decision) -> None:
        """What was decided, with each slot that it is about; the decider has logged the decision itself."""
        for one in decision.instructions:
            if isinstance(one, (Move, Split, RemoveSlot)):
                told = {"epoch": decision.epoch, "slot": one.slot, "figures": {"rule": decision.rule}}
                _log.info("%s", one, extra=told)

    def note(self, text: str) -> None:
        """What the user should know."""
        _log.warning("%s", text)

    def end(self, run: Run) -> None:
        """How it ended."""
        how = "failed" if run.failed else "interrupted" if run.interrupted else "done"
        figures = {"epochs": run.epochs, "rows": sum(run.rows.values()), "seconds": run.seconds}
        _log.info("%s", how, extra={"epoch": None if run.last is None else run.last.epoch, "figures": figures})

    def close(self) -> None:
        """Nothing to leave."""
