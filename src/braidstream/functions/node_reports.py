"""What the nodes of a function say of an epoch, on their way from worker to driver: `Done`, or `NodeFailure`.

The counterpart of `model.reports`: JSON with a schema, and nobody keeps it; what is kept of a node is its `NodeNote`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from braidstream.errors import BraidstreamError, RunError
from braidstream.functions.failures import FunctionFailed
from braidstream.functions.nodes import NodeReport
from braidstream.model.numbers import SlotId
from braidstream.model.reports import Failure, Result
from braidstream.model.values import Value
from braidstream.state.notes import NodeNote

__all__ = ["Done", "NodeFailure", "Said", "decoded", "done_of", "encoded"]


class Done(Value, frozen=True, tag="done"):
    """A node did its work."""

    report: NodeReport
    state: NodeNote | None = None
    """What it keeps, if anything."""
    result: Result | None = None
    """Of the last stage: the staged results."""


class NodeFailure(Value, frozen=True, tag="failure"):
    """A node cannot go on; with `ts`, because user code failed on the window at that time."""

    failure: Failure
    function: str = ""
    stream: str = ""
    ts: int | None = None

    @classmethod
    def of(cls, node: int, error: BraidstreamError) -> NodeFailure:
        """The report of an error."""
        if isinstance(error, FunctionFailed):
            said = Failure(SlotId(node), error.said, error.expected, error.fix)
            return cls(said, error.function, error.stream, error.ts)
        told = error if isinstance(error, RunError) else RunError(error.wrong, error.expected, error.fix)
        return cls(Failure.of(SlotId(node), told))

    def error(self) -> RunError:
        """The error again."""
        said = self.failure
        if self.ts is None:
            return said.error()
        return FunctionFailed(self.function, self.stream, self.ts, said.wrong, said.expected, said.fix)


Said: TypeAlias = "Done | NodeFailure"

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Done | NodeFailure] = msgspec.json.Decoder(Done | NodeFailure)


def encoded(said: Said) -> bytes:
    """On its way to the driver."""
    return _ENCODER.encode(said)


def decoded(blob: bytes | bytearray) -> Said:
    """What was said."""
    return _DECODER.decode(blob)


def done_of(said: Iterable[Said]) -> Sequence[Done]:
    """What nodes have done; a failure among them is raised, that of the earliest window where there are several."""
    found = list(said)
    if failed := [one for one in found if isinstance(one, NodeFailure)]:
        raise min(failed, key=lambda one: -(1 << 63) if one.ts is None else one.ts).error()
    return [one for one in found if isinstance(one, Done)]
