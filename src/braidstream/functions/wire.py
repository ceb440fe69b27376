"""A local socket, to measure what sending and receiving costs each side (GSDM's nodes talk over TCP).

Both ends are in one thread: a chunk is sent, then received, and each half is timed on its own. So the times are those
of the two nodes, without a second process and without waiting. Cost: two copies through the kernel.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

import numpy as np
import pyarrow as pa

__all__ = ["Wire"]

CHUNK = 64 << 10


class Wire:
    """Carries bytes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._near, self._far = socket.socketpair()
        for end in (self._near, self._far):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * CHUNK)

    def carry(self, blob: pa.Buffer) -> tuple[pa.Buffer, float, float]:
        """What arrives, the time of sending it, and the time of receiving it."""
        source, arrived = memoryview(blob), np.empty(blob.size, dtype=np.uint8)
        target = arrived.data
        send_s = receive_s = 0.0
        for begin in range(0, blob.size, CHUNK):
            end = min(begin + CHUNK, blob.size)
            started = self.clock()
            self._near.sendall(source[begin:end])
            sent = self.clock()
            at = begin
            while at < end:
                at += self._far.recv_into(target[at:end])
            send_s += sent - started
            receive_s += self.clock() - sent
        return pa.py_buffer(arrived), send_s, receive_s

    def close(self) -> None:
        """Close both ends."""
        self._near.close()
        self._far.close()
