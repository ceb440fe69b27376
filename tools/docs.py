"""Runs the code blocks of README.md and the pages below docs/, so that what the documentation shows is true.

And the examples that verify their own answers (`EXAMPLES`), one after the other in a process of their own.

Within one file the blocks run in order, in one process, in an empty temporary folder, with a time limit; so they share
their names and one Spark session. The process sees what a user sees who has activated `.venv`. An HTML comment on the
line before a block directs it:

- ```` ```python ```` runs, unless `<!-- no-run: REASON -->` stands before it (it is counted as skipped);
- ```` ```toml ```` with `<!-- run -->` is written to job.toml and given to `braid run`;
- ```` ```console ```` with `<!-- run -->`: each line that starts with `$ braid` is run, and must exit with 0; the other
  lines are the output that the reader is shown, and are not compared; commands share the page's JVM, and its Spark
  session if it has one, unless they have settings of Spark of their own;
- any block with `<!-- file: NAME -->` is written to NAME, for the blocks after it.

Code that does not run must say why: a block of any language but `text` that neither runs nor has a reason fails its
page, one in a list as well.

Cost: a file without such blocks starts no process. `python -m tools.docs [FILE...]`; exit code 1 if a block or an
example fails.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

__all__ = ["EXAMPLES", "Block", "blocks", "check_examples", "check_file", "main"]

LIMIT_S = 300
EXAMPLES = ("attribution.py", "trades.py", "orders.py")
"""Of examples/, those that need nothing else and fail if their answer is not the one that they promise."""
_FENCE = re.compile(r"^ *(?P<ticks>`{3,}|~{3,}) *(?P<language>\w*)[^`]*$")
_MARK = re.compile(r"^<!--\s*(?P<word>no-run|run|file)(?::\s*(?P<name>[^>]*?))?\s*-->$")
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Sessions of pages are short: a JVM that compiles quickly takes a third less of the cores."""
_PLAIN = {"", "text"}
"""What is shown and is no code; everything else is, whatever it is called."""


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, the line of its first line, and the mark before it."""

    language: str
    text: str
    line: int
    mark: str = ""
    name: str = ""

    @property
    def runs(self) -> bool:
        """Whether the block does anything when the documentation is checked."""
        if self.language == "python":
            return self.mark != "no-run"
        return self.mark == "file" or (self.mark == "run" and self.language in {"toml", "console"})

    @property
    def is_skipped(self) -> bool:
        """Whether the block is code that says why it does not run."""
        return self.language not in _PLAIN and self.mark == "no-run" and bool(self.name)

    @property
    def is_unexplained(self) -> bool:
        """Whether the block is code that does not run and does not say why."""
        return self.language not in _PLAIN and not self.runs and not self.is_skipped


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a Markdown text, in order."""
    found: list[Block] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        if opened := _FENCE.match(lines[number]):
            end = next((i for i in range(number + 1, len(lines)) if lines[i].strip() == opened["ticks"]), len(lines))
            mark = _MARK.match(lines[number - 1].strip()) if number else None
            word, name = (mark["word"], mark["name"] or "") if mark else ("", "")
            body = dedent("\n".join(lines[number + 1 : end]) + "\n")
            found.append(Block(opened["language"], body, number + 2, word, name))
            number = end
        number += 1
    return found


def check_file(path: Path, limit_s: float = LIMIT_S) -> tuple[bool, str]:
    """Run a file's blocks in a process of their own: whether they all succeeded, and a line (or the output) to show."""
    found = blocks(path.read_text(encoding="utf-8"))
    if unexplained := [block for block in found if block.is_unexplained]:
        lines = ", ".join(str(block.line - 1) for block in unexplained)
        return False, f"line {lines}: code that does not run; say why before it: <!-- no-run: REASON -->"
    n_run, n_skipped = sum(block.runs for block in found), sum(block.is_skipped for block in found)
    if not n_run:
        return True, f"{n_skipped} skipped" if n_skipped else "no blocks to run"
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="docs-") as folder:
        output, failure = _run_apart([sys.executable, __file__, "--inside", str(path.resolve())], folder, limit_s)
    if failure:
        return False, "\n".join([failure, *(f"  | {line}" for line in output.splitlines()[-40:])])
    return True, f"{n_run} run, {n_skipped} skipped, {time.monotonic() - began:.1f} s"


def check_examples(paths: Sequence[Path], limit_s: float = LIMIT_S) -> tuple[bool, str]:
    """Run examples as they are, one after the other in one process, which starts one JVM."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="docs-") as folder:
        command = [sys.executable, __file__, "--inside", *(str(path.resolve()) for path in paths)]
        output, failure = _run_apart(command, folder, limit_s)
    if failure:
        return False, "\n".join([failure, *(f"  | {line}" for line in output.splitlines()[-40:])])
    return True, f"{len(paths)} run, {time.monotonic() - began:.1f} s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the named files, or the README, the pages of docs/ and the examples."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description="Run the documentation's code blocks.")
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds a file may take")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.inside:
        for file in given.files:
            _run_example(file) if file.suffix == ".py" else _run_blocks(file)
        return 0
    root = Path(__file__).parents[1]
    files = given.files or [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    examples = [file for file in files if file.suffix == ".py"]
    if not given.files:
        examples = [root / "examples" / name for name in EXAMPLES]
    all_passed = True
    for file in (file for file in files if file.suffix != ".py"):
        passed, report = check_file(file, given.limit)
        all_passed &= passed
        print(f"docs: {os.path.relpath(file)}: {report}", flush=True)
    if examples:
        passed, report = check_examples(examples, given.limit)
        all_passed &= passed
        print(f"docs: {', '.join(os.path.relpath(file) for file in examples)}: {report}", flush=True)
    return 0 if all_passed else 1


def _run_apart(command: list[str], folder: str, limit_s: float) -> tuple[str, str]:
    """Run a command in a session of its own, so that at the limit its children (Spark's JVM) end with it.

    Returns its output and why it failed, or nothing. The output goes through a file: a child that outlives the command
    would keep a pipe open.
    """
    environment = dict(os.environ)
    environment.setdefault("SPARK_SUBMIT_OPTS", _QUICK_JVM)
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', '')}"
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(limit_s)
            failure = f"a block failed (exit code {status})" if status else ""
        except subprocess.TimeoutExpired:
            failure = f"not finished after {limit_s:g} s"
        finally:
            _end_session(process)
        output.seek(0)
        return output.read(), failure


def _end_session(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _run_blocks(path: Path) -> None:
    """Inside the process: run each block; the first failure ends it."""
    names: dict[str, Any] = {"__name__": "__main__"}  # so that Spark ships a block's functions by value
    for block in blocks(path.read_text(encoding="utf-8")):
        if not block.runs:
            continue
        place = f"{path.name}:{block.line}"
        print(f"{place}: {block.language} {block.mark}".rstrip(), flush=True)
        if block.mark == "file":
            Path(_required_name(block, place)).write_text(block.text, encoding="utf-8")
        else:
            _RUNNERS[block.language](block, place, names)


def _run_example(path: Path) -> None:
    print(f"{path.name}:", flush=True)
    runpy.run_path(str(path), run_name="__main__")


def _run_python(block: Block, place: str, names: dict[str, Any]) -> None:
    # Blank lines in front make a traceback name the line of the document.
    exec(compile("\n" * (block.line - 1) + block.text, place.rpartition(":")[0], "exec"), names)


def _run_toml(block: Block, place: str, _names: dict[str, Any]) -> None:
    Path("job.toml").write_text(block.text, encoding="utf-8")
    _command("braid run job.toml", place)


def _run_console(block: Block, place: str, _names: dict[str, Any]) -> None:
    commands = [line.removeprefix("$ ") for line in block.text.splitlines() if line.startswith("$ ")]
    if not commands:
        sys.exit(f"{place}: no line starts with '$ braid'")
    for command in commands:
        _command(command, place)


_RUNNERS: dict[str, Callable[[Block, str, dict[str, Any]], None]] = {
    "python": _run_python,
    "toml": _run_toml,
    "console": _run_console,
}


def _command(command: str, place: str) -> None:
    program, *arguments = shlex.split(command, comments=True)
    if program != "braid":
        sys.exit(f"{place}: only braid is run here, not {program!r}")
    print(f"$ {command}", flush=True)
    if {"--master", "--conf", "--verbose"} & set(arguments):
        status = subprocess.run([Path(sys.executable).with_name("braid"), *arguments], check=False).returncode
    else:
        status = _braid(arguments)
    if status:
        sys.exit(f"{place}: '{command}' ended with exit code {status}")


def _braid(arguments: list[str]) -> int:
    """The command in this process: over the page's Spark session, or one of its own in the same JVM."""
    from braidstream.cli import main as braid  # noqa: PLC0415  (only who runs blocks needs it)

    before, sys.argv = sys.argv, ["braid", *arguments]
    try:
        braid()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    finally:
        sys.argv = before
        sys.stdout.flush()
    return 0


def _required_name(block: Block, place: str) -> str:
    return block.name or sys.exit(f"{place}: the mark names no file, as in <!-- file: job.toml -->")


if __name__ == "__main__":
    sys.exit(main())
