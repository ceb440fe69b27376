"""Types, columns, functions and job tables: what is declared is what arrives, and what does not fit is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from braidstream.errors import InputError, JobError, RunError
from braidstream.functions import (
    FunctionFailed,
    StreamFunction,
    WindowBatch,
    declare_type,
    find_function,
    stream_function,
)
from braidstream.functions.arrays import check_columns, infer_type, result_arrays, result_schema, to_batches
from braidstream.functions.graph import draw, graph_of, to_dot
from braidstream.functions.jobfile import JobFunction, in_order, read_tables
from braidstream.functions.node_reports import NodeFailure, decoded, done_of, encoded
from braidstream.functions.stream_types import Kind, stream_type
from braidstream.functions.templates import FunctionPlan

COMPLEX = pa.struct([("re", pa.float64()), ("im", pa.float64())])
US = pa.timestamp("us", "UTC")


def table(**columns: Any) -> pa.Table:
    n = len(next(iter(columns.values())))
    return pa.table({"ts": pa.array(range(n), pa.int64()).cast(US), **columns})


VECTORS = np.arange(6).reshape(2, 3) * (1 + 2j)
FORMS = {
    "a list of structs": pa.array([[{"re": c.real, "im": c.imag} for c in row] for row in VECTORS], pa.list_(COMPLEX)),
    "re and im in turn": pa.array([row.view(float).tolist() for row in VECTORS]),
    "a fixed-size list": pa.array([row.view(float).tolist() for row in VECTORS], pa.list_(pa.float64(), 6)),
    "binary": pa.array([row.tobytes() for row in VECTORS], pa.binary()),
    "a large list": pa.array([row.view(float).tolist() for row in VECTORS], pa.large_list(pa.float64())),
}


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("sliced", [False, True], ids=["whole", "sliced"])
def test_complex_vectors_are_read_from_every_form(form: str, sliced: bool) -> None:
    declared = stream_type("T", ts="timestamp", v="vector of complex")
    rows = table(v=FORMS[form])
    check_columns(declared, rows.schema, "s")
    batches, left_out = to_batches(rows.slice(1) if sliced else rows, declared, "ts")
    assert left_out == 0
    assert np.array_equal(batches[0]["v"], VECTORS[1:] if sliced else VECTORS)


def test_complex_samples_are_read_from_structs_and_from_pairs_of_columns() -> None:
    struct = pa.array([{"re": 1.0, "im": 2.0}, None, {"re": 3.0, "im": None}], COMPLEX)
    rows = table(x=struct, y_re=[1.0, 2.0, 3.0], y_im=[0.5, None, 0.0], n=[1, 2, 3], word=["a", "b", "c"])
    declared = infer_type("s", rows.schema, "ts")
    assert declared.describe() == "s(ts: timestamp, x: complex, y: complex, n: int, word: text)"
    batch = to_batches(rows, declared, "ts")[0][0]
    assert batch["x"][0] == 1 + 2j
    assert np.isnan(batch["x"][1:]).all()
    assert batch["y"][0] == 1 + 0.5j
    assert np.isnan(batch["y"][1].imag)
    assert batch["word"].tolist() == ["a", "b", "c"]


def test_rows_without_a_time_or_a_vector_are_left_out_and_counted() -> None:
    rows = pa.table({"ts": pa.array([0, None, 2], pa.int64()).cast(US), "v": pa.array([[1.0], [2.0], None])})
    batches, left_out = to_batches(rows, infer_type("s", rows.schema, "ts"), "ts")
    assert (left_out, [b["v"].tolist() for b in batches]) == (2, [[[1.0]]])


def test_vectors_of_different_lengths_are_batches_of_their_own() -> None:
    rows = table(v=pa.array([[1.0, 2.0], [3.0, 4.0], [5.0], []]), k=[7, 8, 9, 10])
    batches, _ = to_batches(rows, infer_type("s", rows.schema, "ts"), "ts")
    assert [(b["v"].shape, b["k"].tolist(), b.ts.tolist()) for b in batches] == [
        ((2, 2), [7, 8], [0, 1]), ((1, 1), [9], [2]), ((1, 0), [10], [3]),
    ]  # fmt: skip


def test_a_binary_vector_of_the_wrong_length_is_refused() -> None:
    rows = table(v=pa.array([b"123"], pa.binary()))
    with pytest.raises(RunError, match="3 bytes"):
        to_batches(rows, stream_type("T", v="vector of float"), "ts")


def test_results_come_back_as_they_were() -> None:
    gives = stream_type(
        "R", a="float", b="vector of float32", c="complex", d="vector of complex", e="text", f="bool", g="int"
    )
    fields = {
        "a": np.array([1.5]), "b": np.ones((1, 2), np.float32), "c": np.array([1j]), "d": VECTORS[:1],
        "e": np.array(["x"]), "f": np.array([True]), "g": np.array([3]),
    }  # fmt: skip
    batch = WindowBatch(np.array([7]), np.array([1_000_000]), fields)
    made = pa.table(result_arrays(batch, gives, US), schema=result_schema(gives, "ts", US))
    row = made.to_pylist()[0]
    assert (row["seq"], row["a"], row["b"], row["c"], row["e"], row["f"], row["g"]) == (
        7, 1.5, [1.0, 1.0], {"re": 0.0, "im": 1.0}, "x", True, 3,
    )  # fmt: skip
    again, _ = to_batches(made, gives, "ts")
    assert np.array_equal(again[0]["d"], VECTORS[:1])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("timeval", "timestamp"),
        ("Vector of  DOUBLE", "vector of float"),
        ("vector[8] of complex", "vector[8] of complex"),
    ],
)
def test_kinds_are_read_in_words(text: str, shown: str) -> None:
    assert str(Kind.parse(text)) == shown


@pytest.mark.parametrize("text", ["vektor of float", "vector of text", "vector of vector of float", ""])
def test_what_is_no_kind_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        Kind.parse(text)


def test_a_name_has_one_declaration() -> None:
    first = declare_type("ONCE", x="float")
    assert declare_type("ONCE", {"x": "float"}) == first
    with pytest.raises(InputError, match="already declared as ONCE"):
        declare_type("ONCE", x="int")


def call(answer: Any, n: int = 2, **gives: str) -> Any:
    batch = WindowBatch(np.arange(n), np.arange(n) + 5, {"x": np.ones((n, 3))})
    function = StreamFunction("f", lambda _: answer, stream_type("R", gives))
    return function.call(batch, "s").results.fields


@pytest.mark.parametrize(
    ("answer", "gives", "words"),
    [
        ({"p": np.ones(2)}, {"p": "vector of float"}, r"float64 of shape \(2,\)\n.*float64 of shape \(2, any\)"),
        ({"p": np.ones((2, 3))}, {"p": "vector[4] of float"}, r"shape \(2, 3\)\n.*shape \(2, 4\)"),
        ({"p": np.ones(3)}, {"p": "float"}, r"shape \(3,\)\n.*shape \(2,\)"),
        ({"p": np.ones(2)}, {"p": "int"}, r"float64 of shape \(2,\)\n.*int: int64"),
        ({"p": np.array(["a", "b"])}, {"p": "float"}, r"<U1 of shape"),
        ({"q": np.ones(2)}, {"p": "float"}, "no field 'p', only q"),
        ({"p": np.ones(2), "q": 1}, {"p": "float"}, "a field 'q' as well"),
        (np.ones(2), {"p": "float"}, r"float64 of shape \(2,\)\n.*a mapping"),
        (None, {"p": "float"}, "NoneType"),
    ],
)
def test_an_answer_that_does_not_fit_names_the_declared_and_the_actual_form(
    answer: Any, gives: dict[str, str], words: str
) -> None:
    with pytest.raises(FunctionFailed, match=words) as failed:
        call(answer, **gives)
    assert (failed.value.function, failed.value.stream, failed.value.ts) == ("f", "s", 5)


def test_an_answer_is_widened_to_the_declared_type() -> None:
    fields = call({"p": np.array([1, 2]), "q": np.ones((2, 3), np.float32)}, p="float", q="vector of complex")
    assert (fields["p"].dtype, fields["q"].dtype) == (np.float64, np.complex128)


def test_the_window_that_fails_alone_is_the_one_that_is_named() -> None:
    def careless(windows: WindowBatch) -> dict[str, Any]:
        return {"p": 1 / (windows["x"][:, 0] if (windows["x"][:, 0] != 2).all() else None)}  # type: ignore[operator]

    batch = WindowBatch(np.arange(4), np.arange(4) * 100, {"x": np.arange(4.0)[:, None] + 1})
    with pytest.raises(FunctionFailed, match="TypeError") as failed:
        StreamFunction("f", careless, stream_type("R", p="float")).call(batch, "s")
    assert failed.value.ts == 100
    said = decoded(encoded(NodeFailure.of(0, failed.value)))
    with pytest.raises(FunctionFailed) as again:
        done_of([said])
    assert again.value.args == failed.value.args


def test_functions_are_found_by_name_and_by_address() -> None:
    @stream_function(gives={"p": "float"}, per="window")
    def found_by_name(window: Any) -> Any:
        return {"p": window["x"].max()}

    assert find_function("found_by_name") is found_by_name
    assert find_function("braidstream.functions.fft:fft3").name == "fft3"
    with pytest.raises(InputError, match="no stream function"):
        find_function("braidstream.functions.fft:fft3_part")


JOB = {
    "types": {"JOB_SAMPLES": {"ts": "timestamp", "x": "complex"}},
    "functions": {
        "f": {
            "stream": "radio", "function": "fft3", "size": 8, "degrees": [2, 2],
            "split": "braidstream.functions.fft:fft3_part", "combine": "braidstream.functions.fft:fft3_combine",
        },
        "g": {"stream": "radio", "function": "fft3", "degrees": [3], "distribute": "hash", "timeout": "1 second"},
    },
}  # fmt: skip


def test_the_tables_of_a_job_file_make_types_and_templates() -> None:
    types, functions = read_tables(JOB, "job.toml")
    assert types["JOB_SAMPLES"].describe() == "JOB_SAMPLES(ts: timestamp, x: complex)"
    assert [FunctionPlan.of(f.template()).strategy for f in functions.values()] == ["WS2x2", "WD3"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"functon": "x"}, "functon.*\n.*\n.*did you mean 'function'"),
        ({"size": "8"}, "size is '8'"),
        ({"degrees": [2, "x"]}, "degrees is"),
        ({"function": "fft"}, "there is no function 'fft'"),
        ({"step": 3, "size": None}, "size is None"),
        ({"combine": "braidstream.functions.fft:fft3_combin"}, "has no 'fft3_combin'"),
    ],
)
def test_wrong_job_tables_are_refused_with_their_place(change: dict[str, Any], words: str) -> None:
    wrong = {"functions": {"f": {**JOB["functions"]["f"], **change}}}
    with pytest.raises(JobError, match=rf"(?s)job.toml: .*\[functions.f\].*{words}"):
        read_tables(wrong, "job.toml")


def chained(**takes: str) -> dict[str, JobFunction]:
    """Functions by their names, and what each takes."""
    _, made = read_tables({"functions": {name: {"stream": of, "function": "fft3"} for name, of in takes.items()}}, "")
    return made


def test_functions_of_a_job_file_are_put_in_the_order_of_the_data_flow() -> None:
    assert list(in_order(chained(c="b", a="radio", b="a"), ["radio"])) == ["a", "b", "c"]
    assert list(in_order(chained(radio="radio"), ["radio"])) == ["radio"]
    assert in_order({}, ["radio"]) == {}


def test_streams_are_not_put_beside_results() -> None:
    made = chained(a="radio", b="a")
    with pytest.raises(InputError, match="'b' aligns the results of function 'a' with streams beside them"):
        in_order({**made, "b": replace(made["b"], beside=("radio",))}, ["radio"])


@pytest.mark.parametrize(
    ("takes", "wrong", "fix"),
    [
        ({"a": "radio", "b": "radio"}, "functions 'a' and 'b' both take a stream", 'stream = "a" in [functions.b]'),
        ({"a": "radio", "b": "a", "c": "a"}, "'b' and 'c' both take the results of 'a'", 'stream = "b"'),
        ({"a": "b", "b": "a"}, "no stream reaches 'a' and 'b': 'a' takes 'b'", "name a stream of the job"),
        ({"a": "radio", "b": "b"}, "no stream reaches 'b': 'b' takes 'b'", "name a stream of the job"),
    ],
)
def test_functions_that_are_no_single_chain_are_refused(takes: dict[str, str], wrong: str, fix: str) -> None:
    with pytest.raises(InputError) as refused:
        in_order(chained(**takes), ["radio"])
    assert wrong in refused.value.wrong
    assert fix in refused.value.fix


def test_the_graph_of_a_tree_has_all_nodes_and_arcs(tmp_path: Path) -> None:
    plan = FunctionPlan.of(read_tables(JOB, "job.toml")[1]["f"].template())
    graph = graph_of(plan)
    assert len(graph.labels) == plan.n_nodes == 10
    assert len(graph.arcs) == 2 * (2 + 4)
    assert ((2, 3), (3, 1)) in graph.arcs
    assert to_dot(plan).count("->") == 12
    draw(plan, tmp_path / "plan.png")
    assert (tmp_path / "plan.png").stat().st_size > 1000


def test_the_graph_of_functions_that_feed_one_another_is_one(tmp_path: Path) -> None:
    tree, central = (FunctionPlan.of(one) for one in (read_tables(JOB, "job.toml")[1]["f"].template(), "fft3"))
    graph = graph_of([tree, central, tree])
    assert len(graph.labels) == len(set(graph.labels)) == 10 + 1 + 10
    assert len(graph.arcs) == 12 + 1 + 1 + 12
    assert {((4, 0), (5, 0)), ((5, 0), (6, 0)), ((8, 3), (9, 1))} <= set(graph.arcs)
    assert to_dot([tree, central]).startswith('digraph "WS2x2 then Central"')
    draw([tree, central], tmp_path / "plans.png")
    assert (tmp_path / "plans.png").stat().st_size > 1000
