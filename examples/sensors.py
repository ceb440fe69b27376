"""Sensors with FFT: the spectrum of a vibration, window by window, on one node and split over two.

    .venv/bin/python examples/sensors.py

Half a minute of a bearing that turns at 50 Hz, until something begins to ring. Windows overlap by half; their spectra
are computed by a function of ours, centrally and by window distribute. Both are compared with NumPy over the whole
signal, and drawn as a spectrogram.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from braidstream import Flow, local_session
from braidstream.functions import PCC, Central, Distribute, Merge, stream_function
from braidstream.lab.starters.made_streams import RATE_HZ, vibration
from braidstream.lab.workloads import append_files, cut
from braidstream.pictures import drawing, head, save

PICTURE = Path(__file__).parents[1] / "build" / "examples" / "sensors.png"
SIZE, STEP = 1024, 512


@stream_function(gives={"power": "vector of float"})
def spectrum(windows):
    """The power of each frequency; `windows["level"]` has a row for each window."""
    return {"power": np.abs(np.fft.rfft(windows["level"] * np.hanning(SIZE))) ** 2}


def spectra(spark: object, folder: Path, template: object, name: str) -> np.ndarray:
    flow = Flow(spark, name)
    flow.files("vibration", folder / "vibration", time="ts", options={"maxFilesPerTrigger": "2"})
    query = flow.windows(size=SIZE, step=STEP).apply(template).to("memory")
    print(flow.explain())
    flow.start(folder / name).await_termination()
    table = query.table().sort_by("seq")
    return np.array(table["power"].to_pylist())


def main() -> None:
    stream: pa.Table = vibration(seed=1)["vibration"]
    spark = local_session("local[2]", settings={"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    with tempfile.TemporaryDirectory() as name:
        append_files(Path(name) / "vibration", cut(stream, 32_768))
        central = spectra(spark, Path(name), Central(spectrum), "central")
        spread = spectra(spark, Path(name), PCC(2, Distribute(), spectrum, Merge()), "spread")
    spark.stop()
    whole = np.lib.stride_tricks.sliding_window_view(stream["level"].to_numpy(), SIZE)[::STEP]
    expected = np.abs(np.fft.rfft(whole * np.hanning(SIZE))) ** 2
    for found in (central, spread):
        assert found.shape == expected.shape
        assert np.allclose(found, expected, rtol=1e-9, atol=1e-9 * expected.max())
    print(f"verified: {len(central)} windows, as NumPy has them over the whole signal, on one node and on two")
    loudest = expected[:, 1:].argmax(axis=1) + 1
    began = np.flatnonzero(loudest * RATE_HZ / SIZE > 1000)[0] * STEP / RATE_HZ
    print(f"the ringing is the loudest from second {began:.1f} on")
    draw(central)


def draw(power: np.ndarray) -> None:
    """A spectrogram."""
    with drawing({"axes.grid": False}) as plt:
        figure, axes = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
        shape = (0, len(power) * STEP / RATE_HZ, 0, RATE_HZ / 2)
        decibels = 10 * np.log10(power.T + 1e-6)
        quiet = np.quantile(decibels, 0.98)  # most of it is noise
        image = axes.imshow(decibels, origin="lower", aspect="auto", extent=shape, cmap="cividis", vmin=quiet)
        figure.colorbar(image, label="dB")
        axes.set(xlabel="event time (seconds)", ylabel="Hz")
        head(figure, "A bearing, and what begins to ring in it")
        save(plt, figure, PICTURE)
    print(f"picture: {PICTURE}")


if __name__ == "__main__":
    main()
