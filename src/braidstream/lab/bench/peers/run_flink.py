"""A query on Flink SQL, in a cluster inside of one JVM: `python run_flink.py REQUEST`.

The JVM is warm when it is measured: the query runs twice, and the second time counts, from submitting the job to its
end. Streams are read from one file each, because Flink's source takes several in no order, which would make rows late.
Event times are of milliseconds there; the query compares the microseconds beside. Results go to `blackhole`; to check,
they are counted and summed by the same job, in small batches.
"""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import Any

from asked import Asked, asked, say
from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableDescriptor, TableEnvironment

_MINI_BATCH = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "100000",
}


def main() -> None:
    """Run it."""
    request = asked()
    tables = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(_settings(request)).build()
    )
    for name, stream in request["streams"].items():
        columns = ", ".join(f"`{column}` {kind}" for column, kind in stream["columns"].items())
        tables.execute_sql(
            f"CREATE TABLE {name} ({columns}, t AS TO_TIMESTAMP_LTZ(ts / 1000, 3), WATERMARK FOR t AS t) "
            f"WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = 'file://{stream['merged']}')"
        )
    if request["is_check"]:
        _check(tables, request)
        return
    for _ in range(2):
        result = tables.sql_query(request["sql"])
        began = time.perf_counter()
        result.execute_insert(TableDescriptor.for_connector("blackhole").build()).wait()
        took = time.perf_counter() - began
    say({"version": version("apache-flink"), "seconds": took})


def _settings(request: Asked) -> Configuration:
    """As many subtasks as cores, the state on the heap, saved every second where it is saved."""
    jars = ";".join(f"file://{jar}" for jar in request["jars"])
    chosen = {
        "parallelism.default": str(request["cores"]),
        "pipeline.jars": jars,
        "pipeline.classpaths": jars,
        "pipeline.object-reuse": "true",
        "state.backend.type": "hashmap",
        "taskmanager.memory.network.min": "256m",
        "taskmanager.memory.network.max": "256m",
        "table.local-time-zone": "UTC",
    }
    if request["checkpoint"] is not None:
        chosen |= {
            "execution.checkpointing.interval": "1 s",
            "execution.checkpointing.dir": f"file://{request['checkpoint']}",
            "execution.checkpointing.storage": "filesystem",
        }
    made = Configuration()
    for name, value in chosen.items():
        made.set_string(name, value)
    return made


def _check(tables: Any, request: Asked) -> None:
    for name, value in _MINI_BATCH.items():
        tables.get_config().set(name, value)
    last = None
    text = f"SELECT COUNT(*), SUM({request['check']}) FROM ({request['sql']})"
    with tables.execute_sql(text).collect() as rows:
        for row in rows:
            last = row
    found = (0, 0) if last is None else tuple(last)
    say({"version": version("apache-flink"), "results": int(found[0]), "checksum": int(found[1] or 0)})


main()
