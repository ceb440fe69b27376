"""Made streams: when tuples arrive, which keys they have, and the files that a source reads them from."""

from braidstream.workloads.arrivals import Schedule, constant_arrivals, poisson_arrivals
from braidstream.workloads.files import STREAM_SCHEMA, WSJ_PAYLOAD_BYTES, StreamFiles, append_files, cut, write_stream
from braidstream.workloads.keys import BModelKeys, HotKey, Keys, UniformKeys, ZipfKeys, matches_per_tuple

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
