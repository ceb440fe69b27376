"""First jobs: they are whole, fit their data, are the same for the same seed, and overwrite nothing."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from braidstream import jobs
from braidstream.lab.starters import FILES, USES, find_use, write
from tests.cli.workshop import Braid, Workshop


@pytest.mark.parametrize("use", USES)
def test_a_first_job_is_whole_and_passes_its_check(use: str, tmp_path: Path, braid: Braid) -> None:
    made = braid("new", use, tmp_path / "job")
    assert made.code == 0, made.err
    assert f"cd {tmp_path / 'job'} && braid run job.toml" in made.out
    assert {"README.md", "data", "job.toml"} <= {path.name for path in (tmp_path / "job").iterdir()}
    job = jobs.read(tmp_path / "job" / "job.toml")
    for stream in job.streams.values():
        files = sorted(Path(stream.path or "").glob("*.parquet"))
        assert len(files) == FILES
        times = [time for file in files for time in pq.read_table(file)[stream.time].to_pylist()]
        assert times == sorted(times)
    checked = braid("check", tmp_path / "job" / "job.toml")
    assert checked.code == 0, checked.err
    assert "starts from the beginning" in checked.out


def test_the_same_seed_makes_the_same_rows(tmp_path: Path) -> None:
    for name, seed in (("one", 7), ("same", 7), ("other", 8)):
        write(find_use("trades"), tmp_path / name, seed)
    one, same, other = (Workshop(tmp_path / name).tree() for name in ("one", "same", "other"))
    assert one == same
    assert one != other


def test_nothing_is_overwritten(tmp_path: Path, braid: Braid) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("mine")
    (tmp_path / "empty").mkdir()
    refused = braid("new", "clicks", tmp_path / "full")
    assert refused.code == 2
    assert "is not empty" in refused.err
    assert "full-2" in refused.err
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["precious"]
    assert braid("new", "clicks", tmp_path / "empty").code == 0
    assert braid("new", "clicks", tmp_path / "full" / "precious").code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "full"], "nothing unfinished is left"


def test_an_unknown_use_is_refused_with_the_nearest(braid: Braid, tmp_path: Path) -> None:
    refused = braid("new", "payment", tmp_path / "job")
    assert refused.code == 2
    assert "did you mean 'payments'?" in refused.err
    assert not (tmp_path / "job").exists()


ANSWERS = {
    "clicks": {
        "attributed": "FROM impressions i JOIN clicks c USING (impression) "
        "WHERE c.ts BETWEEN i.ts + INTERVAL 1 SECOND AND i.ts + INTERVAL 10 MINUTE",
        "never_clicked": "FROM impressions i WHERE NOT EXISTS (FROM clicks c WHERE c.impression = i.impression "
        "AND c.ts BETWEEN i.ts + INTERVAL 1 SECOND AND i.ts + INTERVAL 10 MINUTE)",
    },
    "payments": {
        "paid": "FROM orders o JOIN payments p USING (order_id) WHERE p.ts BETWEEN o.ts AND o.ts + INTERVAL 30 MINUTE",
        "unpaid": "FROM orders o WHERE NOT EXISTS (FROM payments p WHERE p.order_id = o.order_id "
        "AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 30 MINUTE)",
    },
    "sensors": {"spectra": "FROM (SELECT 1 FROM vibration LIMIT 255)"},
    "trades": {"priced": "FROM trades", "volume": "FROM (SELECT DISTINCT symbol, ts // 300000000 FROM trades)"},
}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("use", USES)
def test_a_first_job_runs_and_gives_as_many_rows_as_a_batch_query(use: str, tmp_path: Path, spark: object) -> None:
    write(find_use(use), tmp_path / "job", seed=3)
    job = tmp_path / "job" / "job.toml"
    if use != "sensors":
        job.write_text(job.read_text().replace('epoch = "available"', 'epoch = "available"\nfinal = true'))
    read = jobs.read(job)
    jobs.start(read, spark).await_termination()
    batch = duckdb.connect()
    for name, stream in read.streams.items():
        times = "* REPLACE (epoch_us(ts) AS ts)" if use == "trades" else "*"
        batch.sql(f"CREATE VIEW {name} AS SELECT {times} FROM '{stream.path}/*.parquet'")
    for name, query in ANSWERS[use].items():
        found = pq.read_table(tmp_path / "job" / "out" / name).num_rows
        expected = batch.sql(f"SELECT COUNT(*) {query}").fetchall()[0][0]
        assert found == expected > 0, name
