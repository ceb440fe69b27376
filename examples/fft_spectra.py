"""Spectra of a radio signal: windows of a stream of samples, transformed in parallel, in the order of the stream.

    python examples/fft_spectra.py [FOLDER]

Makes a signal with a tone that drifts through three channels, forms overlapping windows of it, and computes their FFT
once on one node and once by window split on two; prints the plans, the strongest frequency over time, and checks that
both ways agree.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from braidstream import Flow, local_session
from braidstream.functions import PCC, Central, Join, Split
from braidstream.functions.fft import fft3_combine, fft3_part
from braidstream.lab.workloads import append_files

RATE, SECONDS, SIZE, STEP = 8192, 8, 1024, 512
SCHEMA = "ts timestamp, " + ", ".join(f"{c}_re double, {c}_im double" for c in "xyz")


def make_signal(folder: Path) -> None:
    """One Parquet file a second: a tone from 500 Hz to 2500 Hz, and noise."""
    n = RATE * SECONDS
    t = np.arange(n) / RATE
    tone = np.exp(2j * np.pi * (500 * t + (2000 / SECONDS) * t**2 / 2))
    rng = np.random.default_rng(1)
    times = pa.array((t * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC"))
    columns = {"ts": times}
    for i, name in enumerate("xyz"):
        channel = tone * np.exp(1j * i) + 0.5 * (rng.normal(size=n) + 1j * rng.normal(size=n))
        columns |= {f"{name}_re": pa.array(channel.real.copy()), f"{name}_im": pa.array(channel.imag.copy())}
    whole = pa.table(columns)
    append_files(folder, (whole.slice(second * RATE, RATE) for second in range(SECONDS)))


def spectra(spark: object, folder: Path, template: object, name: str) -> pa.Table:
    flow = Flow(spark, name).files(
        "radio", folder / "radio", schema=SCHEMA, time="ts", options={"maxFilesPerTrigger": "2"}
    )
    query = flow.windows(size=SIZE, step=STEP).apply(template).to("memory")
    print(flow.explain())
    flow.start(folder / name).await_termination()
    return query.table()


def numbers(table: pa.Table, name: str) -> np.ndarray:
    real, imaginary = table.column(name).combine_chunks().flatten().flatten()
    return (real.to_numpy() + 1j * imaginary.to_numpy()).reshape(table.num_rows, -1)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    make_signal(folder / "radio")
    spark = local_session("local[2]", settings={"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    whole = spectra(spark, folder, Central("fft3"), "central")
    split = spectra(spark, folder, PCC(2, Split(fft3_part), "fft3", Join(fft3_combine)), "split")
    spark.stop()
    power = np.abs(numbers(whole, "x"))
    loudest = np.argmax(power[:, : SIZE // 2], axis=1) * RATE / SIZE
    for second in range(SECONDS):
        at = second * RATE // STEP
        print(f"{second} s: {loudest[at]:6.0f} Hz " + "#" * round(loudest[at] / 50))
    worst = np.abs(numbers(split, "x") - numbers(whole, "x")).max() / power.max()
    print(f"{whole.num_rows} windows; window split differs by {worst:.1e} (relative)")
    assert worst < 1e-9


if __name__ == "__main__":
    main()
