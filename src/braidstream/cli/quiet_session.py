"""The Spark session of a command: quiet, and stopped when the command ends.

Spark's JVM writes to the terminal from its first moment on, before any log level can be set. So while it is started,
the output of this process goes to a log file, which the JVM and its Python workers inherit; a command that fails says
where the log is, one that ends well removes it. `--verbose` leaves all of it on the terminal. A session that was there
before (under spark-submit the JVM is) is used as it is.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console

from braidstream.errors import BraidstreamError, InputError, RunError
from braidstream.model.secrets import resolved_options

__all__ = ["Say", "error_console", "parse_settings", "settings_of", "spark_session"]

Say: TypeAlias = Callable[[str], None]
"""Where a command says a line."""
_MOST_LINES = 6
_NOISE = re.compile(r"^\s*at |WARN|WARNING|log4j|INFO|SPARK_LOCAL_IP|setLogLevel")


def error_console() -> Console:
    """The terminal's error output: progress, notes and errors; results go to the standard output."""
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def parse_settings(pairs: Sequence[str]) -> dict[str, str]:
    """The settings of `--conf name=value`."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.startswith("spark."):
            fix = "for example --conf spark.sql.shuffle.partitions=4"
            raise InputError(f"--conf {pair!r} is no setting of Spark", "--conf spark.name=value", fix)
        found[name] = value
    return found


def settings_of(declared: Mapping[str, str], pairs: Sequence[str]) -> dict[str, str]:
    """Those of a job file and of `--conf`, which win; secrets among them may be `env:NAME`, and are hidden."""
    return resolved_options({**declared, **parse_settings(pairs)}, "a setting of Spark")


@contextmanager
def spark_session(
    name: str, settings: Mapping[str, str], *, master: str | None, verbose: bool, say: Say | None = None
) -> Iterator[Any]:
    """A Spark session for one command; one that exists already is used and left running."""
    there = _existing()
    if there is not None:
        yield there
        return
    log = None if verbose or "PYSPARK_GATEWAY_PORT" in os.environ else _new_log()
    try:
        spark = _start(name, settings, master, log)
        if not verbose:
            spark.sparkContext.setLogLevel("ERROR")
        with _without_py4j():
            try:
                yield spark
            finally:
                _stop(spark)
    except InputError:
        _remove(log)
        raise
    except Exception as error:
        _keep_stack(log, error)
        _point_to(log, say or error_console().print)
        raise
    _remove(log)


@contextmanager
def _without_py4j() -> Iterator[None]:
    """Py4J logs the stack of every call that an interrupt cuts off; what is wrong is raised as well."""
    log = logging.getLogger("py4j")
    before, log.propagate = log.propagate, False
    try:
        yield
    finally:
        log.propagate = before


def _stop(spark: Any) -> None:
    """Stop the session, if its process is still there."""
    from braidstream.spark.causes import has_gone  # noqa: PLC0415  (slow to import)

    try:
        spark.stop()
    except Exception as error:
        if not has_gone(error):
            raise


def _existing() -> Any:
    """The session of this process, if it has one: somebody else's."""
    from pyspark import SparkContext  # noqa: PLC0415  (slow to import)
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if SparkContext._active_spark_context is None:  # no public way asks without making one
        return None
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def _start(name: str, settings: Mapping[str, str], master: str | None, log: Path | None) -> Any:
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from braidstream.spark.session import local_session  # noqa: PLC0415

    try:
        with _output_to(log):
            return local_session(master, name, settings)
    except (PySparkException, Py4JError, OSError) as error:
        raise _not_started(error, log) from None


def _not_started(error: Exception, log: Path | None) -> BraidstreamError:
    """Why Spark did not start, from what it wrote; without its stack."""
    written = [*_tail(log), *str(error).splitlines()]
    said = [line.strip() for line in written if line.strip() and not _NOISE.search(line)]
    about_master = next((line for line in said if "Master must" in line or "parse Master URL" in line), None)
    if about_master is not None:
        reason = about_master.split("Exception: ")[-1]
        return InputError(
            f"Spark did not start: {reason}", "local[4], spark://host:7077, yarn, k8s://...", "check --master"
        )
    reason = "\n    ".join(said[:_MOST_LINES])
    if "JAVA_GATEWAY_EXITED" not in str(error):
        return RunError(f"Spark did not start:\n    {reason}", "", "check --master, --conf and [spark]")
    fix = "install a JDK, or set JAVA_HOME; if Java is there, check --conf and [spark]"
    return RunError(f"Spark did not start:\n    {reason}", "Java 17 or later", fix)


@contextmanager
def _output_to(log: Path | None) -> Iterator[None]:
    """Send what this process writes to the log while it starts the JVM, which goes on writing there."""
    if log is None:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    with log.open("ab") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    try:
        yield
    finally:
        for descriptor, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, descriptor)
            os.close(copy)


def _new_log() -> Path:
    descriptor, name = tempfile.mkstemp(prefix="braid-", suffix=".log")
    os.close(descriptor)
    return Path(name)


def _tail(log: Path | None) -> list[str]:
    text = log.read_text(errors="replace") if log is not None else ""
    return [line for line in text.splitlines() if line.strip()]


def _point_to(log: Path | None, say: Say) -> None:
    if _tail(log):
        say(f"Spark's log: {log}")
    else:
        _remove(log)


def _keep_stack(log: Path | None, error: Exception) -> None:
    """Of what is no error of ours the terminal has a line; the rest is in the log, beside Spark's own words."""
    if log is not None and not isinstance(error, BraidstreamError):
        with suppress(OSError), log.open("a") as file:
            traceback.print_exception(error, file=file)


def _remove(log: Path | None) -> None:
    with suppress(OSError):
        if log is not None:
            log.unlink()
