"""A live plot of spectra: the flow's sink is a function that draws the newest window of every epoch.

    python examples/fft_live_plot.py [SECONDS]

Samples come from Spark's `rate` source; the plot appears in a window where there is a display, otherwise each epoch
replaces `spectrum.png` in the current folder.
"""

from __future__ import annotations

import sys
import tempfile

import matplotlib
import numpy as np
from pyspark.sql import functions as F  # noqa: N812

from braidstream import Flow, local_session
from braidstream.functions import PCC, Distribute, Merge, stream_function
from braidstream.pictures import drawing

RATE, SIZE = 4096, 1024


@stream_function(gives={"power": "vector of float"})
def power(windows):
    """The power spectrum of real samples."""
    return {"power": np.abs(np.fft.rfft(windows["v"])) ** 2}


class Plot:
    """Draws the newest window of an epoch, in the style of all pictures here."""

    def __init__(self) -> None:
        with drawing(is_live=True) as plt:
            self.plt = plt
            self.is_shown = matplotlib.get_backend().lower() not in ("agg", "pdf", "svg")
            self.figure, axes = plt.subplots()
            (self.line,) = axes.semilogy(np.fft.rfftfreq(SIZE, 1 / RATE), np.ones(SIZE // 2 + 1))
            axes.set(xlabel="Hz", ylabel="power", ylim=(1e-2, 1e6))

    def __call__(self, results, epoch: int) -> None:
        newest = results.orderBy(F.desc("seq")).limit(1).collect()
        if not newest:
            return
        self.line.set_ydata(newest[0]["power"])
        self.figure.suptitle(f"epoch {epoch}, window {newest[0]['seq']}")
        if self.is_shown:
            self.plt.pause(0.001)
        else:
            self.figure.savefig("spectrum.png")


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    if not sys.stdout.isatty():
        matplotlib.use("Agg")
    spark = local_session("local[2]", settings={"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    rows = spark.readStream.format("rate").option("rowsPerSecond", RATE).load()
    tone = F.sin(F.col("value") * (2 * np.pi * 440 / RATE)) + F.lit(0.3) * F.sin(
        F.col("value") * (2 * np.pi * 1200 / RATE)
    )
    # The source's own times are whole milliseconds: four samples would share one, and their order would be lost.
    moment = F.timestamp_micros((F.col("value") * 1_000_000 / RATE).cast("long"))
    samples = rows.select(moment.alias("ts"), tone.alias("v"))
    flow = Flow(spark, "live").stream("tone", samples, time="ts", delay="1 second")
    flow.windows(size=SIZE, step=SIZE // 2).apply(PCC(2, Distribute(), power, Merge())).to(Plot())
    handle = flow.start(f"{tempfile.mkdtemp()}/ck", epoch="1 second")
    handle.run_for(f"{seconds:g} seconds")
    print(handle.totals)
    spark.stop()


if __name__ == "__main__":
    main()
