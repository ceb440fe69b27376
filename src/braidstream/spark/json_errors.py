"""PySpark's errors on standard error: a line of JSON, with the stack, for each that Spark's SQL engine raises.

PySpark writes it when such an exception is made, whoever catches it. What is raised here is told once, in one line,
with the stack in `failure.log`; so the threads that raise it write none. Other threads of a program do, as before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.logger import PySparkLogger

__all__ = ["without_json"]

_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


class _OfOthers(logging.Filter):
    """Lets pass what other threads say."""

    def __init__(self) -> None:
        super().__init__()
        self._own = threading.get_ident()

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self._own


@contextmanager
def without_json() -> Iterator[None]:
    """What this thread is told by Spark inside is not written to standard error as JSON."""
    passing = _OfOthers()
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(passing)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(passing)
