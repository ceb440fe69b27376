"""A flow in a process of its own, for tests that kill it: `python child.py FOLDER --sinks JSON [--slots N]`.

It joins the streams FOLDER/R and FOLDER/S, one file of each an epoch, once for each sink, until all files are read. The
sinks are {name: {"to": format, "path": ..., other options}}. Started again, it goes on where the checkpoint ends.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from braidstream.spark.flow import Flow
from braidstream.spark.session import local_session
from tests.spark.child import DDL, QUERY, QUIET


def main() -> None:
    """Run the flow."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--slots", type=int)
    parser.add_argument("--sinks", type=json.loads)
    parser.add_argument("--checkpoint")
    parser.add_argument("--settings", type=json.loads, default={})
    given = parser.parse_args()
    spark = local_session("local[2]", "child", {**QUIET, **given.settings})
    flow = Flow(spark, slots=given.slots, groups=12)
    for name in "RS":
        flow.files(name, given.folder / name, schema=DDL, time="ts", options={"maxFilesPerTrigger": "1"})
    for name, sink in given.sinks.items():
        text = QUERY if not name.endswith("computed") else QUERY.replace("R.v AS rv", "R.v + 0 AS rv")
        flow.query(text, name=name).to(**sink)
    flow.start(given.checkpoint or given.folder / "ck", keep=3, warm=False).await_termination()


if __name__ == "__main__":
    main()
