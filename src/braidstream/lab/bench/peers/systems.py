"""How each system is started: the interpreter of its environment, its script or module, and its settings.

Environments are folders below one that `tools/peers.sh` makes: `flink`, `pathway`, `bytewax` and `batch`, and `jars`
for Flink. What could not be installed has left its reason in a file `NAME.failed` there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from braidstream.lab.bench.cases import BRAIDSTREAM, ENOUGH_HEAP, SPARK_MEMORY, SPARK_ROCKSDB_4
from braidstream.lab.bench.measure import SETTINGS
from braidstream.lab.bench.peers.asked import Asked, Streamed
from braidstream.lab.bench.peers.workloads import BYTEWAX, DUCKDB, FLINK, FLINK_SAVED, PATHWAY, POLARS, Workload
from braidstream.lab.bench.running import Run, run_process

__all__ = ["CORES", "LIMIT_S", "MOST_MB", "SYSTEMS", "run_system", "why_not"]

CORES = 2
LIMIT_S = 60.0
_CHECK_LIMIT_S = 600.0
"""Of an answer that is compared, and not timed."""
MOST_MB = 8_000.0
_HEAP = "-Xms4g -Xmx4g -XX:+UseParallelGC"


@dataclass(frozen=True)
class Peer:
    """One that is no part of Spark."""

    environment: str
    script: str
    variables: Mapping[str, str]
    is_saved: bool = False


_PEERS = {
    FLINK: Peer("flink", "run_flink.py", {"JVM_ARGS": _HEAP}),
    FLINK_SAVED: Peer("flink", "run_flink.py", {"JVM_ARGS": _HEAP}, is_saved=True),
    PATHWAY: Peer("pathway", "run_pathway.py", {"PATHWAY_THREADS": str(CORES)}),
    BYTEWAX: Peer("bytewax", "run_bytewax.py", {}),
    DUCKDB: Peer("batch", "run_duckdb.py", {}),
    POLARS: Peer("batch", "run_polars.py", {"POLARS_MAX_THREADS": str(CORES)}),
}
SYSTEMS = (SPARK_MEMORY, SPARK_ROCKSDB_4, *_PEERS, BRAIDSTREAM)


def why_not(workload: Workload, system: str, root: Path) -> str | None:
    """Why a system cannot run a workload here; None: it can."""
    if system in workload.cannot:
        return workload.cannot[system]
    if system not in _PEERS or _python(_PEERS[system], root).exists():
        return None
    reason = root / f"{_PEERS[system].environment}.failed"
    return f"could not be installed: {reason.read_text().strip()}" if reason.exists() else "is not installed"


def run_system(workload: Workload, system: str, data: Path, root: Path, *, is_check: bool) -> Run:
    """One process of a system on the streams in a folder."""
    limit = _CHECK_LIMIT_S if is_check else LIMIT_S
    if system not in _PEERS:
        settings = json.dumps(SETTINGS[ENOUGH_HEAP])
        command = [sys.executable, "-m", *workload.child, system, str(data), settings]
        return run_process([*command, "check"] if is_check else command, limit, MOST_MB)
    peer = _PEERS[system]
    script = Path(__file__).parent / peer.script
    request = json.dumps(_request(workload, system, data, root, is_check))
    return run_process([str(_python(peer, root)), str(script), request], limit, MOST_MB, peer.variables)


def _python(peer: Peer, root: Path) -> Path:
    return (root / peer.environment / "bin" / "python").absolute()


def _request(workload: Workload, system: str, data: Path, root: Path, is_check: bool) -> Asked:
    streams: dict[str, Streamed] = {
        name: {
            "files": [str(file) for file in sorted((data.absolute() / name).glob("*.parquet"))],
            "merged": str(data.absolute() / "merged" / f"{name}.parquet"),
            "columns": dict(columns),
        }
        for name, columns in workload.streams.items()
    }
    return {
        "streams": streams,
        "window_us": workload.window_us,
        "how": workload.how,
        "sql": workload.flink if system in (FLINK, FLINK_SAVED) else workload.duckdb,
        "check": workload.check,
        "is_check": is_check,
        "files_per_epoch": workload.files_per_epoch,
        "checkpoint": str(data.absolute() / "checkpoint-flink") if _PEERS[system].is_saved else None,
        "jars": sorted(str(jar) for jar in (root.absolute() / "jars").glob("*.jar")),
        "cores": CORES,
    }
