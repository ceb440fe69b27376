"""Large envelopes pass in files on one machine: slots receive what was sent, as often as they ask."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from braidstream.kernels.routing import pack, unpack
from braidstream.model.envelopes import Content, Envelope, Kind
from braidstream.slot import handover
from braidstream.slot.handover import blob_of, clear, handed_over


def _envelopes(rng: np.random.Generator) -> list[Envelope]:
    kinds = [Kind(content, int(rng.integers(0, 1 << 20)), int(rng.integers(0, 256))) for content in Content]
    rows = [pa.table({"h": rng.integers(-9, 9, n), "t": [str(i) for i in range(n)]}) for n in (0, 1, 5, 300, 2)]
    blobs = [pack(table) for table in rows] + [b"", b"tally", pa.py_buffer(bytes(rng.integers(0, 256, 4000).tolist()))]
    return [Envelope(slot, kind, blob) for slot, (kind, blob) in enumerate(zip(kinds, blobs, strict=True))]


def _received(batches: list[pa.RecordBatch]) -> list[tuple[int, Kind, bytes]]:
    rows = [row for batch in batches for row in zip(*(column for column in batch.columns), strict=True)]
    envelopes = [Envelope.of(slot.as_py(), code.as_py(), blob.as_buffer()) for slot, code, blob in rows]
    return sorted((e.slot, e.kind, bytes(blob_of(e))) for e in envelopes)


@pytest.mark.parametrize("least", [0, 1, 1000, 1 << 18])
def test_slots_receive_what_was_sent_however_often_they_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    monkeypatch.setattr(handover, "LEAST", least)
    sent, folder = _envelopes(np.random.default_rng(7)), tmp_path / "a folder"
    wanted = sorted((e.slot, e.kind, bytes(e.blob)) for e in sent)
    batches = [*handed_over(sent, str(folder)), *handed_over(sent, str(folder))]  # a second attempt
    assert _received(batches) == _received(batches) == sorted(wanted + wanted)
    assert len(list(folder.glob("*"))) == (2 if least <= 1000 else 0)
    assert sum(batch.nbytes for batch in batches) < 4000 if least <= 1 else True


def test_rows_stay_readable_after_the_files_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "LEAST", 0)
    rows = pa.table({"h": np.arange(10_000)})
    (batch,) = handed_over([Envelope(0, Kind(Content.ROWS), pack(rows))], str(tmp_path))
    found = unpack(blob_of(Envelope.of(0, batch.column(1)[0].as_py(), batch.column(2)[0].as_buffer())))
    clear(str(tmp_path))
    assert not list(tmp_path.iterdir())
    assert found.equals(rows)


def test_nothing_is_written_where_slots_may_be_on_other_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "LEAST", 0)
    monkeypatch.chdir(tmp_path)
    sent = _envelopes(np.random.default_rng(7))
    assert _received(list(handed_over(sent, None))) == sorted((e.slot, e.kind, bytes(e.blob)) for e in sent)
    clear(None)
    assert not list(tmp_path.iterdir())
