"""The cause of a failure in one line: what Spark wraps in a page of stack traces.

An error in a worker reaches the driver as text: a Python traceback inside a Java exception inside a Python one. What a
user wants of it is the innermost exception that says something, the file that was being read and, where the user's own
code raised it, the line of it. `one_line` finds these; `logged` keeps the whole stack in the checkpoint's folder, in
`failure.log`, sends it to Python's logger `braidstream` (silent unless the application configures logging), and lets
the error name the file.

Invariant: nothing here raises; what cannot be read is shown by its first line. Pure, except `logged`. Cost: linear in
the text.
"""

from __future__ import annotations

import logging
import re
import sysconfig
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from braidstream.errors import BraidstreamError
from braidstream.hiding import scrubbed
from braidstream.state.files import Files

__all__ = ["LOG", "has_gone", "in_expression", "logged", "one_line"]

LOG = "failure.log"
"""The file in the checkpoint's folder with the whole stack of the last failure."""
LOGGER = logging.getLogger("braidstream")
LOGGER.addHandler(logging.NullHandler())

_LONGEST = 600
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
_JAVA = re.compile(r"^(?:: |Caused by: )(?P<kind>[\w.$]+)(?:: (?P<message>.*))?$")
_JAVA_FRAME = re.compile(r"\s+(at [\w.$<>/@-]+\(|\.\.\. \d+ more)|Driver stacktrace:")
_KIND = re.compile(r"(?P<kind>[A-Za-z_][\w.$]*(?:Error|Exception|Exit|Interrupt|Warning|Invalid|Failure)\w*)(?:: |$)")
_WRAPPED = (
    re.compile(r"^\[STREAM_FAILED\].*?terminated with exception: "),
    re.compile(r"^\[FOREACH_BATCH_USER_FUNCTION_ERROR\].*?Reason: "),
    re.compile(r"^Job aborted due to stage failure: .*?Lost task [^:]*?\(TID \d+\) \([^)]*\): "),
    re.compile(r"^Job aborted due to stage failure: "),
)
"""What Spark puts in front of a cause."""
_EMPTY = ("FAILED_READ_FILE.NO_HINT", "TASK_WRITE_FAILED", "Exception thrown in awaitResult", "Writing job aborted")
"""Messages that say that something failed, not what."""
_LESS = ("SocketException", "EOFException", "ClassNotFoundException", "SchemaColumnConvertNotSupportedException")
"""Kinds of which the exception around them says more."""
_ENDED = (
    "SparkContext was shut down",
    "SparkContext has been shutdown",
    "stopped SparkContext",
    "Answer from Java side",
    "does not exist in the JVM",
)
"""What Spark, or Py4J, says of a session that has ended."""
_READ = re.compile(r"reading file:? (?P<file>\S+?)\.?(?:\s|$)")
_FRAGMENT = re.compile(r"== SQL .*?==\n(?P<sql>.*?)\n\s*\^", re.DOTALL)
_CALLED = re.compile(r"was called from\n(?P<place>\S+:\d+)")
_STATE = re.compile(r"\s*SQLSTATE: \w{5}")
_LIBRARIES = ("site-packages", "dist-packages", "pyspark.zip", "py4j-", sysconfig.get_paths()["stdlib"])
_OURS = str(Path(__file__).parents[1])


@dataclass(frozen=True)
class _Raised:
    """One exception of a text: its kind, what it says, and the frames of its stack, if it is Python's."""

    kind: str
    message: str
    frames: tuple[tuple[str, str, str], ...] = ()

    @property
    def says_little(self) -> bool:
        """Whether another exception around this one says more."""
        plain = not self.message or any(word in self.message for word in _EMPTY)
        return plain or self.kind.rpartition(".")[2] in _LESS or self.message.startswith("Job aborted")


def one_line(error: BaseException) -> str:
    """The cause of an error: the last exception that says something, the file and the user's line where known."""
    text = _text(error)
    told = _python(text) or _java(text)
    if told is None:
        shown = _sentence(text)
        own = type(error).__name__
        told = f"{own}: {shown}" if shown and not _speaks_for_itself(error, shown) else shown or own
        told += _place(_frames_of(error)) if not isinstance(error, BraidstreamError) else ""
    return _shortened(told)


def has_gone(error: BaseException) -> bool:
    """Whether an error only says that Spark's process has ended, or was told to."""
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    lost = any(isinstance(one, ConnectionError) or type(one).__name__ == "Py4JNetworkError" for one in chain)
    return lost or any(word in str(one) for one in chain for word in _ENDED)


def in_expression(error: BaseException) -> str | None:
    """The SQL expression whose evaluation failed, if Spark names one."""
    found = _FRAGMENT.search(_text(error))
    return None if found is None else " ".join(found["sql"].replace("`", "").split())


def logged(error: BraidstreamError, origin: BaseException, folder: str) -> BraidstreamError:
    """The error, which now names the log in a checkpoint's folder that has the whole stack of what made it fail."""
    stack = scrubbed("".join(traceback.format_exception(origin)))
    LOGGER.error("%s\n%s", error, stack)
    files = Files(folder)
    try:
        with files.create(LOG) as log:
            log.write(f"{error}\n\n{stack}".encode(errors="replace"))
        error.name_log(files.path(LOG))
    except OSError:  # a disk that is full is often what made it fail
        with suppress(OSError):
            files.delete(LOG)
    return error


def _text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # of a Spark exception whose JVM is gone
        text = str(getattr(error, "_desc", "") or type(error).__name__)
    text = text.split("\n\nJVM stacktrace:")[0].split("\n=== Streaming Query ===")[0]
    return text.strip()


def _speaks_for_itself(error: BaseException, shown: str) -> bool:
    """Whether the kind of an error adds nothing: it is ours, or Spark's with a condition in brackets."""
    return isinstance(error, BraidstreamError) or shown.startswith("[")


def _python(text: str) -> str | None:
    """What the last Python traceback of a text says."""
    _, found, block = text.rpartition(_TRACEBACK)
    if not found:
        return None
    raised = _of_traceback(block.splitlines()[1:])
    if raised is None:
        return None
    if raised.kind.startswith("braidstream.errors."):
        return raised.message.split("\n  expected: ")[0].split("\n  hint: ")[0]
    if raised.kind.startswith(("py4j.", "pyspark.")):
        return _java(block) or _sentence(raised.message)
    shown = f"{raised.kind.rpartition('.')[2]}: {raised.message}" if raised.message else raised.kind
    return _joined(shown) + _place(raised.frames)


def _of_traceback(lines: Sequence[str]) -> _Raised | None:
    """Frames are indented; what follows them is the exception, as far as the Java stack below it."""
    frames = []
    for number, line in enumerate(lines):
        if found := _FRAME.match(line):
            frames.append((found["file"], found["line"], found["function"] or ""))
        elif line and not line[0].isspace():
            said = "\n".join([line, *_until_stack(lines[number + 1 :])])
            kind, _, message = said.partition(": ")
            return _Raised(kind.strip(), _without_state(message).strip("\n"), tuple(frames))
    return None


def _java(text: str) -> str | None:
    """What the last Java exception says that says something, with the file it was about."""
    lines = text.splitlines()
    starts = [n for n, line in enumerate(lines) if _JAVA.match(line)]
    if not starts:
        return None
    causes = []
    for n in starts:
        found = _JAVA.match(lines[n])
        assert found is not None
        message = "\n".join([found["message"] or "", *_until_stack(lines[n + 1 :])])
        causes.append(_Raised(found["kind"], message.strip()))
    chosen = next((c for c in reversed(causes) if not c.says_little), causes[0])
    shown = _sentence(chosen.message) or chosen.kind
    if not shown.startswith("[") and chosen.message and not chosen.kind.startswith("org.apache.spark."):
        shown = f"{chosen.kind.rpartition('.')[2]}: {shown}"
    file = next((found["file"] for c in causes if (found := _READ.search(c.message))), None)
    return shown if file is None or Path(file).name in shown else f"{_local(file)}: {shown}"


def _until_stack(lines: Sequence[str]) -> list[str]:
    """The lines up to the first of a Java stack, another exception, or a note of Spark's."""
    taken: list[str] = []
    for line in lines:
        if _JAVA_FRAME.match(line) or _JAVA.match(line) or line.startswith("==="):
            break
        taken.append(line)
    return taken


def _sentence(text: str) -> str:
    """A message of Spark's without what it is wrapped in, with the expression or the line of code it is about."""
    for wrapping in _WRAPPED:
        text = wrapping.sub("", text)
    if found := _KIND.match(text):
        text = text if found["kind"].count(".") < 2 else text[found.end() :] or found["kind"]
    head = re.split(r"\n\s*== |\n\s+at \[Source", text)[0]
    shown = _joined(_without_state(head))
    if fragment := _FRAGMENT.search(text):
        shown += f" (in {' '.join(fragment['sql'].replace('`', '').split())})"
    elif called := _CALLED.search(text):
        shown += f" ({called['place']})"
    return shown


def _joined(text: str) -> str:
    return "; ".join(part for line in text.splitlines() if (part := line.strip()))


def _without_state(text: str) -> str:
    return _STATE.sub("", text)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def _frames_of(error: BaseException) -> list[tuple[str, str, str]]:
    return [(entry.filename, str(entry.lineno), entry.name) for entry in traceback.extract_tb(error.__traceback__)]


def _place(frames: Sequence[tuple[str, str, str]]) -> str:
    """The innermost frame that is the user's."""
    for file, line, function in reversed(frames):
        if not _is_library(file):
            return f" ({file}, line {line}{f', in {function}' if function else ''})"
    return ""


def _is_library(file: str) -> bool:
    is_code = file.startswith(("/", "<")) or file[1:3] in (":\\", ":/")
    return not is_code or file.startswith((_OURS, "<frozen")) or any(part in file for part in _LIBRARIES)


def _local(file: str) -> str:
    return re.sub(r"^file:/+", "/", file)
