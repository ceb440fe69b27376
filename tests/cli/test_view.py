"""What a run shows, from made epochs; and how it counts interrupts."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from dataclasses import MISSING, fields

import pytest
from rich.console import Console

from braidstream.cli import words
from braidstream.cli.follow import Interrupts, Run, follow
from braidstream.cli.view import JsonView, LineView, LiveView, QuietView, summary
from braidstream.control.estimate import Interval
from braidstream.epoch.progress import EpochProgress
from braidstream.model.instructions import Decision, Move
from tests.cli.screen import Screen


def an_epoch(number: int, **changes: object) -> EpochProgress:
    values: dict[str, object] = {
        "epoch": number,
        "rows": {"R": 1000, "S": 500},
        "indexed": 1500,
        "late": {"R": 2, "S": 0},
        "keyless": 0,
        "matches": {"pairs": 300},
        "seconds": {"join": 0.4, "deliver": 0.05, "commit": 0.05, "total": 0.5},
        "watermark": 60_000_000,
        "state_rows": 12_000,
        "state_bytes": 3_400_000,
        "segments": 6,
        "slots": 2,
        "groups": 64,
        "at_home": 2,
        "ran": 2,
        "fetched": 0,
        "busy_s": (0.1, 0.2),
        "peak_mb": 100.0,
    }
    rest = [entry for entry in fields(EpochProgress) if entry.name not in values and entry.default is MISSING]
    others = {entry.name: 0 for entry in rest if entry.default_factory is MISSING}  # nothing here shows them
    return EpochProgress(**{**others, **values, **changes})  # type: ignore[arg-type]


def a_run(*epochs: EpochProgress) -> Run:
    run = Run()
    for entry in epochs:
        run.add(entry)
    run.seconds = 2.0
    return run


def test_the_summary_counts_the_whole_run() -> None:
    text = summary("pairs", "ck", a_run(an_epoch(0), an_epoch(1)))
    assert text.splitlines()[0] == "pairs: done after 2 epochs and 2.0 s"
    assert "3,000 (R 2,000, S 1,000), 1,500 a second" in text
    assert "600 (pairs 600)" in text
    assert "late        4" in text
    assert "12,000 rows, 3.4 MB" in text
    assert "1970-01-01 00:01:00.000 UTC" in text
    assert "ck (epoch 1)" in text
    assert summary("pairs", "ck", Run()) == "pairs: done; no new rows"


def test_rows_on_which_an_expression_failed_are_counted_over_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Every epoch warns of its own; who looks at the end sees all of them."""
    run = a_run(an_epoch(0, bad={"R": 2}), an_epoch(1, bad={"R": 1, "R+S": 1200}), an_epoch(2))
    assert "  failed      1,203 (R 3, R+S 1,200): an expression could not be computed" in summary("pairs", "ck", run)
    assert "failed" not in summary("pairs", "ck", a_run(an_epoch(0)))
    JsonView("pairs", "ck").end(run)
    assert json.loads(capsys.readouterr().out)["bad"] == {"R": 3, "R+S": 1200}
    console = Console(record=True, width=200)
    LineView("pairs", "ck", console).epoch(an_epoch(0, bad={"R": 2}))
    assert "failed 2" in console.export_text()


def test_the_live_picture_shows_the_last_epoch_and_the_totals() -> None:
    screen = io.StringIO()
    view = LiveView("pairs", "ck", Console(file=screen, force_terminal=True, width=100, color_system=None))
    run = Run()
    view.phase("starting Spark")
    view._live.refresh()
    view.begin(run)
    for entry in (an_epoch(0), an_epoch(1)):
        run.add(entry)
        view.epoch(entry)
    view.note("stopping after the running epoch")
    view._live.refresh()
    view.close()
    shown = screen.getvalue()
    for part in (
        "starting Spark",
        "rows/s",
        "3,000",
        "12,000",
        "3.4 MB",
        "00:01:00.000",
        "late",
        "epoch 1",
        "stopping",
    ):
        assert part in shown, part


def test_a_measure_is_named_once_in_the_picture() -> None:
    screen = io.StringIO()
    view = LiveView("pairs", "ck", Console(file=screen, force_terminal=True, width=100, color_system=None))
    view.begin(run := Run())
    run.add(entry := an_epoch(1, state_rows=24_000))
    view.epoch(entry)
    view._live.refresh()
    view.close()
    row = next(line for line in screen.getvalue().splitlines() if "state rows" in line)
    assert "24,000" in row
    assert "24,000 rows" not in row


@pytest.mark.parametrize("widths", [(100, 60), (100, 40), (88, 87), (120, 30, 100), (60, 100), (100, 50, 40, 90)])
def test_a_terminal_that_changes_its_width_keeps_no_part_of_a_frame(widths: tuple[int, ...]) -> None:
    screen = Screen(widths[0])
    console = Console(file=screen, force_terminal=True, width=widths[0], color_system=None)  # type: ignore[arg-type]
    console.print("$ braid run job.toml")
    view = LiveView("pairs", "ck", console)
    view._live.auto_refresh = False
    view.begin(run := Run())
    for number, width in enumerate(widths):
        console.width = width
        screen.resize(width)
        run.add(entry := an_epoch(number))
        view.epoch(entry)
        view._live.refresh()
        assert screen.seen.count("╭") == screen.seen.count("╰") == 1, screen.seen
        assert screen.seen.startswith("$ braid run job.toml"[:width]), screen.seen
    view.close()
    assert "╭" not in screen.seen


def test_a_run_that_failed_is_not_done(capsys: pytest.CaptureFixture[str]) -> None:
    class Failing(FakeHandle):
        def await_termination(self, timeout: float) -> bool:
            raise RuntimeError("no room")

    for view in (LineView("pairs", "ck", Console(file=io.StringIO())), JsonView("pairs", "ck")):
        with pytest.raises(RuntimeError, match="no room"):
            follow(lambda: Failing(), view)  # type: ignore[arg-type,return-value]  # noqa: PLW0108
    line, end = capsys.readouterr().out.splitlines()
    assert line == "pairs: failed before the first epoch"
    assert json.loads(end)["failed"] is True
    run = a_run(an_epoch(0))
    run.failed = True
    assert summary("pairs", "ck", run).startswith("pairs: failed after 1 epoch and")


def test_lines_have_all_that_an_epoch_says() -> None:
    screen = io.StringIO()
    LineView("pairs", "ck", Console(file=screen, width=400)).epoch(an_epoch(7))
    line = screen.getvalue()
    for part in ("epoch 7", "1,500 rows in 0.50 s", "3,000 rows/s", "300 matches", "state 12,000 rows", "late 2"):
        assert part in line, part
    assert "pushed" not in line


def test_lines_say_what_was_pushed_and_what_came_back() -> None:
    screen = io.StringIO()
    view = LineView("pairs", "ck", Console(file=screen, width=400))
    view.epoch(an_epoch(7, spilled_groups=3, inactive_bytes=2 << 20))
    view.epoch(an_epoch(7, step=1, recovered={"pairs": 1200}))
    first, second = screen.getvalue().splitlines()
    assert first.startswith("epoch 7")
    assert "3 groups pushed" in first
    assert second.startswith("clean-up 1")
    assert "1,200 recovered" in second


def test_json_lines_can_be_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    view = JsonView("pairs", "ck")
    view.epoch(an_epoch(3))
    view.end(a_run(an_epoch(3)))
    epoch, end = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (epoch["event"], epoch["epoch"], epoch["rows"], epoch["rows_per_s"]) == (
        "epoch",
        3,
        {"R": 1000, "S": 500},
        3000,
    )
    assert (end["event"], end["epochs"], end["checkpoint"]) == ("end", 1, "ck")


def test_words() -> None:
    assert [words.size(n) for n in (0, 999, 1000, 2_500_000, 7e12)] == ["0 B", "999 B", "1.0 kB", "2.5 MB", "7000.0 GB"]
    assert [words.length(s) for s in (0.25, 99, 130, 7300)] == ["0.2 s", "99.0 s", "2 min 10 s", "2 h 01 min"]
    assert words.count(1, "match", "matches") == "1 match"
    assert words.moment(None) == "none yet"
    assert words.moment(1 << 62) == f"{1 << 62} us"
    assert words.spark_line([0, 1, 2, 4], 3) == "▃▅█"
    assert words.spark_line([], 5) == ""


def a_decision() -> Decision:
    return Decision(2, "suppliers", {"group_s": 0.5}, (Move(3, 1),), "slot 0 yields group 3 to slot 1")


def test_every_view_shows_what_the_controller_changed(capsys: pytest.CaptureFixture[str]) -> None:
    screen = io.StringIO()
    LineView("pairs", "ck", Console(file=screen, width=400)).decision(a_decision())
    assert "suppliers: slot 0 yields group 3 to slot 1 [group_s=0.5] -> Move(group=3, slot=1)" in screen.getvalue()
    JsonView("pairs", "ck").decision(a_decision())
    told = json.loads(capsys.readouterr().out)
    assert (told["event"], told["instructions"]) == ("decision", [{"kind": "move", "group": 3, "slot": 1}])
    live = LiveView("pairs", "ck", Console(file=screen, force_terminal=True, width=100, color_system=None))
    run = a_run(an_epoch(2))
    live.begin(run)
    live.epoch(an_epoch(2))
    run.decisions["suppliers"] += 1
    live.decision(a_decision())
    live._live.refresh()
    live.close()
    assert "epoch 2: slot 0 yields group 3" in screen.getvalue()
    assert "changes     suppliers 1" in summary("pairs", "ck", run)


class FakeHandle:
    """A flow that runs until it is told to stop, and does not hear the first word if it is deaf."""

    def __init__(self, deaf: bool = False) -> None:
        self.told: list[str] = []
        self.delays: dict[str, str] = {}
        self.warnings: tuple[str, ...] = ()
        self.changes: tuple[str, ...] = ()
        self.progress: list[EpochProgress] = []
        self.decisions: list[Decision] = [
            a_decision(),
            Decision(2, "splitting", {}, (), "group 4 is too large", "one adaptation at a time"),
        ]
        self._deaf = deaf

    @property
    def parts(self) -> dict[str, FakeHandle]:
        return {"": self}

    def await_termination(self, timeout: float) -> bool:
        time.sleep(min(timeout, 0.01))
        self.progress.append(an_epoch(len(self.progress)))
        if len(self.progress) in (3, 8):
            os.kill(os.getpid(), signal.SIGINT)
        return self.told == ["stop", "kill"] if self._deaf else self.told == ["stop"]

    def stop(self) -> None:
        self.told.append("stop")

    def kill(self) -> None:
        self.told.append("kill")


@pytest.mark.parametrize(("deaf", "told"), [(False, ["stop"]), (True, ["stop", "kill"])])
def test_the_first_interrupt_stops_and_the_second_kills(deaf: bool, told: list[str]) -> None:
    handle = FakeHandle(deaf)
    seen: list[EpochProgress] = []
    before = signal.getsignal(signal.SIGINT)
    run = follow(lambda: handle, QuietView(), seen)  # type: ignore[arg-type,return-value]
    assert run.interrupted
    assert run.decisions == {"suppliers": 1}
    assert handle.told == told
    assert [entry.epoch for entry in seen] == list(range(len(handle.progress)))
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_before_the_flow_runs_is_an_ordinary_one() -> None:
    with Interrupts(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_shedding_is_shown_with_its_interval() -> None:
    told = {"q": Interval(0.8, 0.75, 0.84)}
    run = a_run(an_epoch(0, completeness=told, completeness_so_far=told, shed_bytes=2048))
    assert "complete    q 80.0% (75.0% to 84.0%)" in summary("pairs", "ck", run)


WARNING = "stream R: 40.0% of the rows of epoch 0 were late, and not joined (400 of 1,000)"


def test_late_rows_are_said_once_while_it_runs_and_in_the_summary() -> None:
    """Again only when the delay that they need has doubled."""
    run, said = Run(), []
    for number, needed_us in enumerate((30_000_000, 40_000_000, 90_000_000, 20_000_000)):
        entry = an_epoch(number, late={"R": 400, "S": 0}, late_by={"R": needed_us}, warnings=(WARNING,) * (number != 3))
        run.add(entry)
        said.append(run.news(entry))
    assert said == [[WARNING], [], [WARNING], []]
    (line,) = (line for line in summary("pairs", "ck", run).splitlines() if "warning" in line)
    assert "stream R: 40.0% of the rows of this run were late, and not joined (1,600 of 4,000)" in line
    assert 'delay = "90 seconds"' in line


def test_few_late_rows_are_no_warning() -> None:
    assert "warning" not in summary("pairs", "ck", a_run(an_epoch(0)))
