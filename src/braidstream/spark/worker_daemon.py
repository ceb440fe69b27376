"""The process that Spark forks Python workers from, with all that they import in it already.

    spark.python.daemon.module = braidstream.spark.worker_daemon

PySpark's own imports nothing before it forks, so that each worker has NumPy, Arrow, pandas and the compiled loops to
itself: about 130 MB and most of a second. Here workers share these pages, and one that replaces a dead one begins at
once. PySpark's reason is threads, which a fork does not copy: of what is imported here only Arrow's jemalloc has one,
which it starts anew in a child by itself; BLAS is told to start none, and nothing here computes.

Invariant: where something cannot be imported, the daemon is PySpark's own. Cost: the imports once, before the first
task.
"""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from importlib import import_module

from pyspark.daemon import manager

__all__ = ["main"]

_NEEDED = ("pyspark.worker", "pyarrow.parquet", "braidstream.slot.task", "braidstream.spark.sources")
_THREADS = "OPENBLAS_NUM_THREADS"


def main() -> None:
    """Import, then be PySpark's daemon."""
    os.environ.setdefault(_THREADS, "1")
    with suppress(ImportError):  # a worker that needs it says what is missing
        _import()
    manager()


def _import() -> None:
    for name in _NEEDED:
        import_module(name)
    import_module("braidstream.kernels.loops").load()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    main()
