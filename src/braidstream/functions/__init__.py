"""Stream functions: expensive computations on windows of numbers, in parallel, in the order of the stream (GSDM).

What is computed is a `StreamFunction` over a `WindowBatch`; how it is spread over nodes is a template (`Central`,
`PCC`); `nodes` has what each node does in an epoch, pure; `function_epoch` has the epoch, `node_cluster` the port to
where it runs.
"""

from __future__ import annotations

from braidstream.functions.failures import FunctionFailed
from braidstream.functions.finding import find_function
from braidstream.functions.function import (
    LATER,
    LOST,
    Answers,
    StreamFunction,
    register,
    stream_function,
)
from braidstream.functions.stream_types import StreamType, declare_type, find_type, stream_type
from braidstream.functions.templates import PCC, Central, Distribute, Join, Split
from braidstream.functions.templates import FunctionPlan as Plan
from braidstream.functions.templates import MergeWindows as Merge
from braidstream.functions.window_batch import Window, WindowBatch
from braidstream.functions.windowing import WindowSpec

__all__ = [
    "LATER",
    "LOST",
    "PCC",
    "Answers",
    "Central",
    "Distribute",
    "FunctionFailed",
    "Join",
    "Merge",
    "Plan",
    "Split",
    "StreamFunction",
    "StreamType",
    "Window",
    "WindowBatch",
    "WindowSpec",
    "declare_type",
    "find_function",
    "find_type",
    "register",
    "stream_function",
    "stream_type",
]
