"""Envelopes on one machine: a large blob is handed over as a file, and only its place passes through the engine.

Through Spark a blob is copied from Python to the JVM, into a shuffle file, out of it, and back to Python. Where routing
tasks and slots run on one machine the first writes the blob to a file, the second maps it, and the exchange moves some
dozen bytes. The number of a kind is turned around (`~code`, which is negative) where the blob is a place.

Invariant: a blob is written before its place is given out, files have names of their own and never change, so a task
that runs again finds what the first one found. Whoever runs the job deletes the folder's files when all slots have
answered, and not before. Cost: one write to the page cache; nothing waits for a disk.
"""

from __future__ import annotations

import os
import struct
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from braidstream.kernels.routing import envelopes_to_batch
from braidstream.model.envelopes import Envelope

__all__ = ["LEAST", "blob_of", "clear", "handed_over"]

LEAST = 1 << 18
"""Bytes from which on a blob is handed over in a file."""
_ALIGNED = 64
"""Blobs begin at multiples of it, as Arrow likes its buffers."""
_PLACE = struct.Struct("<qq")


def handed_over(envelopes: Iterable[Envelope], folder: str | None) -> Iterator[pa.RecordBatch]:
    """Envelopes as record batches of the exchange; large ones as places in a new file, where there is a folder."""
    if folder is None:
        return envelopes_to_batch(envelopes)
    return envelopes_to_batch(_placed(envelopes, Path(folder)))


def _placed(envelopes: Iterable[Envelope], folder: Path) -> Iterator[Envelope]:
    file: BinaryIO | None = None
    path = folder / uuid.uuid4().hex
    try:
        for envelope in envelopes:
            if len(envelope.blob) < LEAST:
                yield envelope
                continue
            if file is None:
                folder.mkdir(parents=True, exist_ok=True)
                file = path.open("wb", buffering=0)
            place = _PLACE.pack(_write(file, envelope.blob), len(envelope.blob)) + os.fsencode(path)
            yield Envelope(envelope.slot, envelope.kind, place, is_place=True)
    finally:
        if file is not None:
            file.close()


def _write(file: BinaryIO, blob: bytes | pa.Buffer) -> int:
    """Append a blob; where it begins."""
    begin = file.seek(0, os.SEEK_END)
    begin = file.seek(begin + -begin % _ALIGNED)
    left = memoryview(blob)
    while left:
        left = left[file.write(left) :]
    return begin


def blob_of(envelope: Envelope) -> bytes | pa.Buffer:
    """What was sent in an envelope, mapped where it was handed over."""
    if not envelope.is_place:
        return envelope.blob
    place = bytes(envelope.blob)
    begin, size = _PLACE.unpack_from(place)
    with pa.memory_map(os.fsdecode(place[_PLACE.size :])) as file:
        file.seek(begin)
        return file.read_buffer(size)


def clear(folder: str | None) -> None:
    """Delete what was handed over: all slots have answered."""
    for path in () if folder is None else Path(folder).glob("*"):
        with suppress(FileNotFoundError):
            path.unlink()
