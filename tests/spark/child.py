"""A flow in a process of its own, for tests that kill it: `python child.py FOLDER [--slots N] [--master M] ...`.

It joins the streams FOLDER/R and FOLDER/S, one file of each an epoch, into FOLDER/out, until all files are read, and
prints one line of JSON about its run. Started again, it goes on where the checkpoint ends.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from braidstream.control.controller import Controller
from braidstream.control.settings import Settings
from braidstream.lab.testing.restless import Restless
from braidstream.spark.flow import Flow
from braidstream.spark.session import local_session

DDL = "k long, v long, ts timestamp"
WINDOW_SECONDS = 40
QUERY = (
    "SELECT R.k AS k, R.v AS rv, S.v AS sv "
    f"FROM R [RANGE {WINDOW_SECONDS} SECONDS], S [RANGE {WINDOW_SECONDS} SECONDS] WHERE R.k = S.k"
)
QUIET = {
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "900m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def main() -> None:
    """Run the flow."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--slots", type=int)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--sink", default="parquet")
    parser.add_argument("--memory")
    parser.add_argument("--groups", type=int, default=12)
    parser.add_argument("--restless", type=int, help="move, split and merge groups after every epoch, by this seed")
    given = parser.parse_args()
    spark = local_session(given.master, "child", QUIET)
    controller = None
    if given.restless is not None:
        never_rests = Restless(given.restless, n_changes=12, max_slots=given.slots)
        controller = Controller(Settings(every=1), policies=(never_rests,))
    flow = Flow(spark, slots=given.slots, groups=given.groups, memory=given.memory, controller=controller)
    for name in "RS":
        flow.files(name, given.folder / name, schema=DDL, time="ts", options={"maxFilesPerTrigger": "1"})
    flow.query(QUERY, name="q").to(given.sink, path=str(given.folder / "out"))
    handle = flow.start(given.folder / "ck", keep=3)
    handle.await_termination()
    shown = {
        "epochs": [p.epoch for p in handle.progress],
        "slots": [p.slots for p in handle.progress],
        "at_home": [p.at_home for p in handle.progress],
        "ran": [p.ran for p in handle.progress],
        "locality": handle.locality,
        "totals": handle.totals,
        "heavy": max((len(p.heavy) for p in handle.progress), default=0),
        "spilled": max((p.spilled_groups for p in handle.progress), default=0),
        "moves": sum(one.rule == "restless" and one.is_accepted for one in handle.decisions),
        "recovered": sum(sum(p.recovered.values()) for p in handle.progress),
    }
    print(json.dumps(shown), flush=True)


if __name__ == "__main__":
    main()
