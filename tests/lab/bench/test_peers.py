"""Beside other systems: what a comparison says when systems are right, wrong, missing or fail, without running them."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from braidstream.lab.bench import running
from braidstream.lab.bench.cases import BRAIDSTREAM, SPARK_MEMORY
from braidstream.lab.bench.measure import Measurement
from braidstream.lab.bench.peers import beside, systems
from braidstream.lab.bench.peers.asked import check_of
from braidstream.lab.bench.peers.beside import CANNOT, Comparison, answer
from braidstream.lab.bench.peers.rates_picture import draw_peers
from braidstream.lab.bench.peers.recorded import WRONG, merged, read
from braidstream.lab.bench.peers.workloads import BYTEWAX, DUCKDB, FLINK, JOINS, POLARS, Workload, check_sql
from braidstream.lab.bench.running import Run, run_process
from braidstream.lab.workloads.stream_files import STREAM_SCHEMA, append_files

SCRIPTS = sorted(Path(systems.__file__).parent.glob("run_*.py"))
WINDOW = 10_000_000


def some_streams(folder: Path, names: Any, n_rows: int = 300, seed: int = 1) -> dict[str, list[tuple[int, int, int]]]:
    rng, made = np.random.default_rng(seed), {}
    for name in names:
        times = np.sort(rng.integers(0, 60_000_000, n_rows))
        times[::7] = times[::7] // WINDOW * WINDOW  # on the bounds of windows
        columns = [rng.integers(0, 80, n_rows), np.arange(n_rows), np.sort(times)]
        append_files(folder / name, [pa.table(columns, schema=STREAM_SCHEMA)])
        made[name] = list(zip(*(column.tolist() for column in columns), strict=True))
    return made


def by_loops(workload: Workload, streams: dict[str, list[tuple[int, int, int]]]) -> tuple[int, int]:
    first, *others = streams.values()
    found = [[row] for row in first]
    for other in others:
        met = [
            [*rows, row] for rows in found for row in other
            if row[0] == rows[0][0] and all(abs(row[2] - one[2]) <= WINDOW for one in rows)
        ]  # fmt: skip
        if workload.how == "left":
            matched = {rows[0][1] for rows in met}
            met += [[*rows, (0, -1, 0)] for rows in found if rows[0][1] not in matched]
        found = met
    return len(found), sum(check_of(*(row[1] for row in rows)) for rows in found)


@pytest.mark.parametrize("name", JOINS)
def test_what_duckdb_is_asked_is_the_join(name: str, tmp_path: Path) -> None:
    workload = JOINS[name]
    streams = some_streams(tmp_path, workload.streams)
    expected = by_loops(workload, streams)
    assert answer(workload, tmp_path) == expected
    assert expected[0] > 100
    if workload.how == "left":
        assert answer(workload, tmp_path, is_decided=True)[0] < expected[0]


def test_the_check_of_a_result_is_the_same_in_sql_and_in_python() -> None:
    text = check_sql("a", "b", "c")
    values = "SELECT 5::BIGINT AS a, NULL::BIGINT AS b, 123456789::BIGINT AS c"
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT {text} FROM ({values})").fetchall()
    assert found == [(check_of(5, -1, 123456789),)]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_scripts_of_peers_import_nothing_of_braidstream(script: Path) -> None:
    own = {"run_duckdb": {"duckdb"}, "run_polars": {"polars"}, "run_flink": {"pyflink"},
           "run_bytewax": {"bytewax", "pyarrow"}, "run_pathway": {"pathway", "pandas", "pyarrow"}}  # fmt: skip
    imported = set()
    for file in (script, script.with_name("asked.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
            elif isinstance(node, ast.Import):
                imported |= {name.name.split(".")[0] for name in node.names}
    assert imported - sys.stdlib_module_names - {"asked"} == own[script.stem]


class Machine:
    """Stands in for the processes: what each system prints in turn."""

    def __init__(self, printed: dict[str, list[Any]]) -> None:
        self.printed, self.ran = printed, list[tuple[str, bool]]()

    def run(self, workload: Workload, system: str, data: Path, root: Path, *, is_check: bool) -> Run:
        self.ran.append((system, is_check))
        next_one = self.printed[system].pop(0)
        if isinstance(next_one, Run):
            return next_one
        if next_one == "right":
            results, checksum = answer(workload, data)
            return Run({"epoch_ms": [], "results": results, "checksum": checksum, "version": "1.0"}, 100.0)
        return Run(next_one, 500.0)


def small(name: str, chosen: tuple[str, ...], **changes: Any) -> Workload:
    case = JOINS[name]
    kept = {field: getattr(case, field) for field in case.__dataclass_fields__}
    kept |= {"systems": chosen, "write": lambda folder: [some_streams(folder, "RS", seed=s) for s in range(4)],
             "files_per_epoch": 1, "rows_per_epoch": 600, "warm": 1, "measured": 2, "fewer": {}, **changes}  # fmt: skip
    return Workload(**kept)


def compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, workload: Workload, printed: dict[str, list[Any]], **options: Any
) -> tuple[Machine, dict[str, Measurement]]:
    machine = Machine(printed)
    monkeypatch.setattr(beside, "run_system", machine.run)
    monkeypatch.setattr(beside, "why_not", lambda one, system, root: one.cannot.get(system))
    found = Comparison(tmp_path / "data", tmp_path, **options).run([workload], (), lambda _: None)
    return machine, {entry.system: entry for entry in found}


def test_answers_are_compared_first_and_then_systems_take_turns(monkeypatch: Any, tmp_path: Path) -> None:
    spark = [{"epoch_ms": [9e9, 100.0, ms]} for ms in (300.0, 500.0, 100.0)]
    flink = [{"epoch_ms": [], "seconds": seconds} for seconds in (3.0, 1.0, 2.0)]
    workload = small("uniform-1m", (SPARK_MEMORY, FLINK))
    machine, found = compared(
        monkeypatch, tmp_path, workload, {SPARK_MEMORY: ["right", *spark], FLINK: ["right", *flink]}, rounds=3
    )
    assert machine.ran == [(SPARK_MEMORY, True), (FLINK, True), *[(SPARK_MEMORY, False), (FLINK, False)] * 3]
    assert found[SPARK_MEMORY].rows_per_s == pytest.approx(2 * 600 / 0.4)
    assert found[FLINK].rows_per_s == pytest.approx(3 * 600 / 2.0)
    assert found[FLINK].epoch_ms is None
    assert found[FLINK].ratio_to_spark_memory == pytest.approx(900 / 3000)
    assert "results and their sum" in found[FLINK].checked


def test_a_wrong_answer_is_shown_and_not_timed(monkeypatch: Any, tmp_path: Path) -> None:
    wrong = {"epoch_ms": [], "results": 1, "checksum": 2}
    workload = small("uniform-1m", (SPARK_MEMORY, POLARS))
    printed = {SPARK_MEMORY: [wrong], POLARS: ["right", {"epoch_ms": [], "seconds": 1.0, "results": 3}]}
    machine, found = compared(monkeypatch, tmp_path, workload, printed, rounds=2)
    assert [entry.status for entry in found.values()] == [WRONG, WRONG]
    assert "(1, 2)" in found[SPARK_MEMORY].note
    assert found[POLARS].note.startswith("3 results, DuckDB has ")
    assert found[POLARS].rows_per_s is None
    assert len(machine.ran) == 3


def test_what_fails_or_cannot_is_in_the_table_with_the_reason(monkeypatch: Any, tmp_path: Path) -> None:
    late = Run({"epoch_ms": []}, 900.0, "not done after 60 s", "timed out")
    workload = small("left-outer", (BRAIDSTREAM, BYTEWAX, FLINK))
    printed = {BRAIDSTREAM: ["right", {"epoch_ms": [1.0, 2.0, 3.0]}, late], FLINK: [late]}
    _, found = compared(monkeypatch, tmp_path, workload, printed, rounds=2)
    assert (found[BYTEWAX].status, found[BYTEWAX].note) == (CANNOT, workload.cannot[BYTEWAX])
    assert (found[FLINK].status, found[FLINK].note) == ("timed out", "not done after 60 s")
    assert (found[BRAIDSTREAM].status, found[BRAIDSTREAM].rows_per_s) == ("timed out", None)


def test_a_system_that_is_not_installed_says_why(tmp_path: Path) -> None:
    workload = JOINS["uniform-1m"]
    assert systems.why_not(workload, FLINK, tmp_path) == "is not installed"
    (tmp_path / "flink.failed").write_text("ERROR: no wheel\n")
    assert systems.why_not(workload, FLINK, tmp_path) == "could not be installed: ERROR: no wheel"
    assert systems.why_not(workload, SPARK_MEMORY, tmp_path) is None


def test_a_table_is_made_in_pieces(tmp_path: Path) -> None:
    def one(system: str, **fields: Any) -> Measurement:
        return Measurement("hot", system, "default-4g", **{"status": "ok", **fields})

    checks = [one(SPARK_MEMORY, checked="7 results"), one(DUCKDB, checked="7 results"), one(FLINK, status=WRONG)]
    times = [one(SPARK_MEMORY, rows_per_s=10.0), one(DUCKDB, rows_per_s=50.0), one(FLINK, rows_per_s=20.0)]
    for first, second in ((checks, times), (times, checks)):
        found = {entry.system: entry for entry in merged(first, second, ["hot"])}
        assert found[DUCKDB].checked == "7 results"
        assert found[DUCKDB].ratio_to_spark_memory == 5.0
        assert found[FLINK].status == WRONG
    file = tmp_path / "peers.json"
    assert read(file) == []
    file.write_text(json.dumps([{"workload": "hot", "system": FLINK, "settings": "", "status": "ok", "unknown": 1}]))
    assert read(file) == [Measurement("hot", FLINK, "", "ok")]
    draw_peers(merged(checks, times, ["hot"]), tmp_path / "peers.png")
    assert (tmp_path / "peers.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("program", "status", "words"),
    [
        ("import time; time.sleep(60)", "timed out", "not done after 0.5 s"),
        ("raise MemoryError('of its own')", "failed", "MemoryError: of its own"),
        ("import sys; sys.exit(3)", "failed", "ended with 3"),
    ],
)
def test_a_process_that_does_not_end_well_is_ended_and_named(program: str, status: str, words: str) -> None:
    limit = 0.5 if "sleep" in program else 60
    run = run_process([sys.executable, "-c", program], limit)
    assert (run.status, run.failure) == (status, words)


def test_a_process_that_takes_too_much_memory_is_ended() -> None:
    program = "import time; held = bytearray(300_000_000); held[::4096] = b'x' * len(held[::4096]); time.sleep(60)"
    run = run_process([sys.executable, "-c", program], 60, most_mb=200)
    assert run.failure == "needs more than 200 MB"


def test_a_process_says_what_it_measured_and_sees_its_variables() -> None:
    program = "import json, os; print('else'); print(json.dumps({'epoch_ms': [], 'version': os.environ['OWN']}))"
    run = run_process([sys.executable, "-c", program], 60, environment={"OWN": "3"})
    assert (run.failure, run.printed) == (None, {"epoch_ms": [], "version": "3"})


def test_what_a_process_leaves_behind_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM that does not end with its driver holds the output open."""
    monkeypatch.setattr(running, "_LINGERS_S", 0.2)
    left = "import time; time.sleep(600)"
    program = (
        f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {left!r}]); print('{{\"epoch_ms\": [7]}}')"
    )
    run = run_process([sys.executable, "-c", program], 60)
    assert run.failure is None
    assert run.printed["epoch_ms"] == [7]
