"""Spark's Python workers under a mutation: the module that `spark.python.daemon.module` names while one runs.

The daemon breaks what the mutation breaks, once, then serves as PySpark's own does; the workers that it forks have it.
Only sessions that an experiment starts under a mutation (`on_spark.session`) name this module, so that the engine has
no hook for it. Cost: importing the experiments, a second a session.
"""

from __future__ import annotations

import os
from contextlib import ExitStack

from pyspark import daemon

from braidstream.lab.papers.mutations import VARIABLE, Broken, mutation_named

__all__ = ["serve"]


def serve() -> None:
    """Break what is told, and serve until Spark ends the daemon."""
    mutation_named(os.environ[VARIABLE]).breaks(Broken(ExitStack()))  # never undone: it ends with the process
    daemon.manager()


if __name__ == "__main__":
    serve()
