"""Made streams: when tuples arrive, which keys they have, and the files that a source reads them from."""

from braidstream.lab.workloads.arrivals import Schedule, constant_arrivals, poisson_arrivals
from braidstream.lab.workloads.key_values import BModelKeys, HotKey, Keys, UniformKeys, ZipfKeys, matches_per_tuple
from braidstream.lab.workloads.stream_files import (
    STREAM_SCHEMA,
    WSJ_PAYLOAD_BYTES,
    StreamFiles,
    append_files,
    cut,
    write_stream,
)

__all__ = [
    "STREAM_SCHEMA",
    "WSJ_PAYLOAD_BYTES",
    "BModelKeys",
    "HotKey",
    "Keys",
    "Schedule",
    "StreamFiles",
    "UniformKeys",
    "ZipfKeys",
    "append_files",
    "constant_arrivals",
    "cut",
    "matches_per_tuple",
    "poisson_arrivals",
    "write_stream",
]
