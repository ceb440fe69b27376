"""What a run shows: a live picture on a terminal, a line for each epoch elsewhere, JSON for programs, or nothing.

Progress goes to the error output, the summary (and JSON) to the standard output, so that either can be sent elsewhere.
Cost: the live view draws four times a second, whatever the epochs do; it keeps the last `_HISTORY` of them.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.console import Console, Group, RenderableType
from rich.control import Control
from rich.live import Live
from rich.panel import Panel
from rich.segment import ControlType
from rich.table import Table
from rich.text import Text

from braidstream.cli import words
from braidstream.cli.follow import Run, View
from braidstream.cli.quiet_session import error_console
from braidstream.cli.readings import reading

if TYPE_CHECKING:
    from braidstream.epoch.progress import EpochProgress
    from braidstream.model.instructions import Decision

__all__ = ["JsonView", "LineView", "LiveView", "QuietView", "choose_view", "summary"]

_HISTORY = 240
_WIDTH = 88
_BARS = 44
_IDLE_S = 10.0


def choose_view(name: str, checkpoint: str, *, as_json: bool, quiet: bool, verbose: bool = False) -> View:
    """The view that suits the options and the terminal."""
    if as_json:
        return JsonView(name, checkpoint)
    if quiet:
        return QuietView()
    if verbose or not sys.stderr.isatty():  # a picture and the lines of Spark would spoil each other
        return LineView(name, checkpoint, error_console())
    # A descriptor of its own: while Spark starts, the others lead to its log.
    screen = os.fdopen(os.dup(sys.stderr.fileno()), "w")
    return LiveView(name, checkpoint, Console(file=screen, highlight=False))


class QuietView:
    """Shows nothing but notes."""

    def phase(self, text: str) -> None:
        """Nothing to show."""

    def begin(self, run: Run) -> None:
        """Nothing to show."""

    def epoch(self, entry: EpochProgress) -> None:
        """Nothing to show."""

    def decision(self, decision: Decision) -> None:
        """Nothing to show."""

    def note(self, text: str) -> None:
        """Tell the user."""
        error_console().print(text)

    def end(self, run: Run) -> None:
        """Nothing to show."""

    def close(self) -> None:
        """Nothing to leave."""


class JsonView(QuietView):
    """One JSON object a line on the standard output: every epoch, and the end."""

    def __init__(self, name: str, checkpoint: str) -> None:
        self._name, self._checkpoint = name, checkpoint

    def epoch(self, entry: EpochProgress) -> None:
        """Print the epoch."""
        _print_json({"event": "epoch", "flow": self._name, **asdict(entry), "rows_per_s": entry.rows_per_s})

    def decision(self, decision: Decision) -> None:
        """Print the decision."""
        _print_json({"event": "decision", "flow": self._name, **decision.as_json()})

    def end(self, run: Run) -> None:
        """Print the whole."""
        _print_json({"event": "end", "flow": self._name, "checkpoint": self._checkpoint, **_plain(run)})


class LineView(QuietView):
    """A line for each epoch, and the summary."""

    def __init__(self, name: str, checkpoint: str, console: Console) -> None:
        self._name, self._checkpoint, self._console = name, checkpoint, console

    def phase(self, text: str) -> None:
        """Say what is being done."""
        self._console.print(f"{self._name}: {text}")

    def begin(self, run: Run) -> None:
        """Say that it runs."""
        for stream, delay in run.delays.items():
            self.phase(f"stream {stream}: delay {delay}")
        self.phase("running")

    def epoch(self, entry: EpochProgress) -> None:
        """Print the epoch."""
        shown = reading(entry)
        parts = [
            shown.title,
            f"{words.count(sum(entry.rows.values()), 'row')} in {entry.seconds['total']:.2f} s",
            f"{words.number(entry.rows_per_s)} rows/s",
            words.count(shown.n_results, *shown.word),
            f"state {shown.state_shown}",
            f"watermark {words.moment(entry.watermark)}",
            f"late {words.number(sum(entry.late.values()))}",
            *([f"failed {words.number(sum(entry.bad.values()))}"] if entry.bad else []),
            *(f"{n} {name}" for name, n, _ in shown.more),
        ]
        self._console.print("; ".join(parts))

    def decision(self, decision: Decision) -> None:
        """Print which rule fired on which figures."""
        self._console.print(decision.explain(), markup=False)

    def end(self, run: Run) -> None:
        """Print the summary."""
        typer.echo(summary(self._name, self._checkpoint, run))


class LiveView(LineView):
    """A picture on the terminal that follows the run."""

    def __init__(self, name: str, checkpoint: str, console: Console) -> None:
        super().__init__(name, checkpoint, console)
        self._run = Run()
        self._recent: deque[EpochProgress] = deque(maxlen=_HISTORY)
        self._phase, self._note, self._decided = "", "", ""
        self._heard = time.monotonic()
        self._drawn = (0, 0)
        """Width and height of the last frame."""
        self._live = Live(
            console=console, refresh_per_second=4, get_renderable=self._picture, transient=True, redirect_stdout=False
        )

    def phase(self, text: str) -> None:
        """Show it as the title."""
        self._phase = text
        self._live.start()

    def begin(self, run: Run) -> None:
        """From now on the clock counts the run."""
        self._run, self._heard = run, time.monotonic()
        self.phase("first epoch")

    def epoch(self, entry: EpochProgress) -> None:
        """Take the epoch into the picture."""
        self._recent.append(entry)
        self._phase, self._heard = "running", time.monotonic()

    def decision(self, decision: Decision) -> None:
        """Show the last one."""
        self._decided = f"epoch {decision.epoch}: {decision.reason}"

    def note(self, text: str) -> None:
        """Show it below the picture until the end."""
        self._note = text

    def end(self, run: Run) -> None:
        """Leave the summary where the picture was."""
        self.close()
        super().end(run)

    def close(self) -> None:
        """Take the picture away."""
        self._live.stop()

    def _picture(self) -> RenderableType:
        last, now = self._run.last, time.monotonic()
        idle = last is not None and now - self._heard > _IDLE_S
        parts: list[RenderableType] = [] if last is None else [self._now(last), Text(), self._so_far()]
        parts += [Text(self._note, style="yellow")] if self._note else []
        told = [words.length(now - self._run.began), *([f"epoch {last.epoch}"] if last else []), "Ctrl-C stops"]
        panel = Panel(
            Group(*parts),
            title=Text.assemble((self._name, "bold"), "  ", "waiting for rows" if idle else self._phase),
            subtitle=Text("   ".join(told)),
            title_align="left",
            subtitle_align="right",
            width=min(_WIDTH, self._console.width),
        )
        self._take_wrapped_away()
        self._drawn = min(_WIDTH, self._console.width), len(self._console.render_lines(panel))
        return panel

    def _take_wrapped_away(self) -> None:
        """On a terminal that was made narrower the last frame has wrapped: erase the lines that rich does not count."""
        width, height = self._drawn
        n_more = height * (math.ceil(width / max(self._console.width, 1)) - 1)
        erase = [(ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1)]
        if n_more:
            self._console.control(Control(*(erase * n_more)))

    def _now(self, last: EpochProgress) -> Table:
        """The last epoch, and the course of the recent ones."""
        recent = list(self._recent)
        read, states = reading(last), [reading(entry).state for entry in recent]
        table = _grid()
        for name, shown, course in (
            ("rows/s", words.number(last.rows_per_s), [e.rows_per_s for e in recent]),
            (f"{read.word[1]}/s", words.number(_results_per_s(last)), [_results_per_s(e) for e in recent]),
            *((name, text, [state[i][1] for state in states]) for i, (name, _, text, _) in enumerate(read.state)),
        ):
            table.add_row(name, shown, Text(words.spark_line(course, _BARS), style="cyan"))
        table.add_row("watermark", words.moment(last.watermark).removesuffix(" UTC"), Text("UTC", style="dim"))
        for row in (read.spread, *read.more):
            table.add_row(*row)
        return table

    def _so_far(self) -> Table:
        """The whole run."""
        table = _grid()
        word = "matches" if self._run.last is None else reading(self._run.last).word[1]
        for name, counts in (("rows", self._run.rows), (word, self._run.results), ("late", self._run.late)):
            total = sum(counts.values())
            table.add_row(name, words.number(total), words.each(counts) if total else "")
        if self._run.bad:
            table.add_row("failed", *_failed(self._run).split(" ", 1))
        if self._decided:
            table.add_row("changes", words.number(sum(self._run.decisions.values())), Text(self._decided))
        return table


def _grid() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", min_width=10)
    table.add_column(justify="right", min_width=23)
    table.add_column(no_wrap=True)
    return table


def _results_per_s(entry: EpochProgress) -> float:
    return reading(entry).n_results / max(entry.seconds["total"], 1e-9)


def summary(name: str, checkpoint: str, run: Run) -> str:
    """The run in a few lines."""
    how = "failed" if run.failed else "interrupted" if run.interrupted else "done"
    if run.last is None:
        return f"{name}: {how} before the first epoch" if run.failed else f"{name}: {how}; no new rows"
    last, rows, read = run.last, sum(run.rows.values()), reading(run.last)
    lines = [
        f"{name}: {how} after {words.count(run.epochs, 'epoch')} and {words.length(run.seconds)}",
        f"  rows        {words.number(rows)} ({words.each(run.rows)}), {words.number(run.rows_per_s)} a second",
        f"  {read.word[1]:11} {words.number(sum(run.results.values()))} ({words.each(run.results)})",
        f"  late        {words.number(sum(run.late.values()))}",
        *([f"  failed      {_failed(run)}: an expression could not be computed"] if run.bad else []),
        *(f"  warning     {text}" for text in run.warnings()),
        f"  state       {read.state_shown}",
        f"  watermark   {words.moment(last.watermark)}",
        *(f"  {name:11} {text}" for name, _, text in read.more),
        *([f"  changes     {words.each(run.decisions)}"] if run.decisions else []),
        f"  checkpoint  {checkpoint} (epoch {last.epoch})",
    ]
    return "\n".join(lines)


def _failed(run: Run) -> str:
    """How many rows, and of what."""
    return f"{words.number(sum(run.bad.values()))} ({words.each(run.bad)})"


def _plain(run: Run) -> dict[str, object]:
    last = run.last
    return {
        "epochs": run.epochs,
        "epoch": None if last is None else last.epoch,
        "rows": dict(run.rows),
        "matches" if last is None else reading(last).word[1]: dict(run.results),
        "late": dict(run.late),
        "late_by": dict(run.late_by),
        "bad": dict(run.bad),
        "warnings": run.warnings(),
        "delays": dict(run.delays),
        "seconds": run.seconds,
        "rows_per_s": run.rows_per_s,
        "watermark": None if last is None else last.watermark,
        "state_rows": None if last is None else last.state_rows,
        "state_bytes": None if last is None else last.state_bytes,
        "completeness": {} if last is None else {q: asdict(of) for q, of in last.completeness_so_far.items()},
        "decisions": dict(run.decisions),
        "interrupted": run.interrupted,
        "failed": run.failed,
    }


def _print_json(plain: dict[str, object]) -> None:
    typer.echo(json.dumps(plain))
