"""Files of a checkpoint's metadata: a line that seals them, a JSON header that people can read, and columns behind it.

    braid1 KIND CHECKSUM HEADER-BYTES
    {"columns": [["hash", "<u8", 32], ...], "value": {...}}
    (the columns, one after the other, as they are in memory)

The checksum is of all that follows the first line, so a cut, a flipped bit or a file of another kind is found when it
is read, and named. Columns are given as views on what was read: no copy, no object a row.

Cost: one pass over the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from braidstream.state.checksums import crc32

__all__ = ["Columns", "check", "is_packed", "is_whole", "pack", "unpack"]

Columns = Mapping[str, npt.NDArray[Any]]

_MAGIC = b"braid1"


class _Header(msgspec.Struct):
    columns: list[tuple[str, str, int]]
    value: msgspec.Raw


_HEADERS = msgspec.json.Decoder(_Header)


def pack(kind: str, value: bytes, columns: Columns) -> bytes:
    """The content of a file: `value` is JSON."""
    arrays = {name: np.ascontiguousarray(values) for name, values in columns.items()}
    told = [(name, values.dtype.str, len(values)) for name, values in arrays.items()]
    header = b'{"columns": %s, "value": %s}' % (msgspec.json.encode(told), value)
    body = b"".join([header, b"\n", *(values.tobytes() for values in arrays.values())])
    return b"%s %s %08x %d\n%s" % (_MAGIC, kind.encode(), crc32(body), len(header), body)


def is_packed(content: bytes) -> bool:
    """Whether it is such a file, as far as its first bytes tell."""
    return content.startswith(_MAGIC)


def check(content: bytes) -> int:
    """The checksum that the first line claims; ValueError when there is none."""
    return int(_sealed(content)[1], 16)


def is_whole(content: bytes, checksum: int) -> bool:
    """Whether it is the file of a checksum, as it was written."""
    try:
        _, found, _, begin = _sealed(content)
        return int(found, 16) == checksum == crc32(memoryview(content)[begin:])
    except ValueError:
        return False


def _sealed(content: bytes) -> tuple[bytes, bytes, int, int]:
    end = content.find(b"\n", 0, 80)
    words = content[: max(end, 0)].split(b" ")
    if len(words) != 4 or words[0] != _MAGIC:
        raise ValueError("it does not begin as such a file does")
    return words[1], words[2], int(words[3]), end + 1


def unpack(kind: str, content: bytes) -> tuple[msgspec.Raw, dict[str, npt.NDArray[Any]]]:
    """The value, as JSON, and the columns; ValueError when the content is not what was written."""
    found, checksum, n_header, begin = _sealed(content)
    body = memoryview(content)[begin:]
    if b"%08x" % crc32(body) != checksum:
        raise ValueError("its checksum does not fit")
    if found != kind.encode():
        raise ValueError(f"it is a {found.decode(errors='replace')}, not a {kind}")
    header = _HEADERS.decode(body[:n_header])
    columns, at = {}, n_header + 1
    for name, dtype, n in header.columns:
        values = np.frombuffer(body, np.dtype(dtype), n, at)
        columns[name], at = values, at + values.nbytes
    return header.value, columns
