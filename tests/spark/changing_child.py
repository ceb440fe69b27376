"""A flow in a process of its own whose queries come and go: `python changing_child.py FOLDER CHANGES`."""

from __future__ import annotations

import sys
from pathlib import Path

from braidstream.lab.workloads import UniformKeys, write_stream
from braidstream.spark.flow import Flow
from braidstream.spark.session import local_session

DDL = "k long, v long, ts timestamp"


def query(number: int) -> str:
    """One whose expressions are not those of the others."""
    streams = "R [RANGE 2 SECONDS], S [RANGE 2 SECONDS]"
    return f"SELECT R.k AS k, S.v + {number} AS v FROM {streams} WHERE R.k = S.k AND R.v + S.v > {number}"


def main() -> None:
    """Submit a query and withdraw the one before, as often as asked."""
    folder, n_changes = Path(sys.argv[1]), int(sys.argv[2])
    for seed, name in enumerate("RS"):
        write_stream(str(folder / name), rate=1000, keys=UniformKeys(500), rows_per_file=500, n_rows=50_000, seed=seed)
    flow = Flow(local_session("local[2]", settings={"spark.ui.enabled": "false"}), slots=2)
    for name in "RS":
        flow.files(name, folder / name, schema=DDL, time="ts", options={"maxFilesPerTrigger": "1"})
    flow.query(query(0), name="q0").to("parquet", path=str(folder / "out0"))
    handle = flow.start(folder / "ck", epoch="500 milliseconds")
    for number in range(1, n_changes + 1):
        flow.submit(query(number), f"q{number}", "parquet", str(folder / f"out{number}"))
        flow.withdraw(f"q{number - 1}")
    handle.stop()
    print("done", flush=True)


if __name__ == "__main__":
    main()
