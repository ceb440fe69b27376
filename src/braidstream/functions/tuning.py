"""What `braid tune` does with a job file: find the function, take a sample of its stream, train.

The sample is the beginning of the stream, cut into a few epochs, the first of which warms up. Parquet files are read
directly; for any other source the caller gives a reader. Nothing is written.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypedDict

import pyarrow as pa
import pyarrow.parquet as pq

from braidstream.errors import InputError, JobError, nearest
from braidstream.functions.arrays import check_columns, infer_type, needed_columns, to_batches
from braidstream.functions.jobfile import JobFunction, read_tables
from braidstream.functions.stream_types import StreamType, find_type
from braidstream.functions.templates import FunctionPlan
from braidstream.functions.training import MODELS, Trained, train
from braidstream.functions.window_batch import WindowBatch

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["StreamTable", "tune"]

N_EPOCHS = 6


class StreamTable(TypedDict, total=False):
    """`[streams.NAME]` of a job file, as far as it is read here."""

    format: str
    path: str
    time: str
    schema: str
    options: Mapping[str, object]


Reader = Callable[[StreamTable, str | None, int], pa.Table]
"""Given a stream's table, its path and a number of rows: the first rows of the stream."""


def tune(
    job: Path, wanted: str, n_windows: int, nodes: int, model: str, read: Reader, tell: Callable[[str], None]
) -> tuple[str, Trained]:
    """The name of the job's function, and what training found for it."""
    if model not in MODELS:
        raise InputError(f"there is no model {model!r}", " or ".join(MODELS), nearest(model, MODELS))
    if n_windows < N_EPOCHS:
        raise InputError(f"the sample has {n_windows} windows", f"at least {N_EPOCHS}")
    tables = _parsed(job)
    sys.path.insert(0, str(job.absolute().parent))  # so that module:function may name a file beside the job
    name, entry = _chosen(job, tables, wanted)
    if entry.beside:
        wrong = f"{job}: function {name!r} aligns several streams"
        raise JobError(wrong, "a function over one stream", "train it while it runs: also = [...] and switch_every")
    if (what := _giver(tables, entry.stream)) is not None:
        wrong = f"{job}: function {name!r} takes the results of {what} {entry.stream!r}"
        raise JobError(wrong, "a function over a stream", "train it while it runs: also = [...] and switch_every")
    sample, declared = _sample(job, tables, entry, n_windows, read)
    windows = declared if entry.size is None else declared.windowed(entry.size)
    FunctionPlan.of(entry.template()).check(windows, f"stream {entry.stream!r}")
    split, combine = entry.halves()
    trained = train(
        entry.target,
        sample,
        nodes=nodes,
        split=split,
        combine=combine,
        model=model,
        spec=entry.spec,
        stream=entry.stream,
        tell=tell,
    )
    return name, trained


def _parsed(job: Path) -> Mapping[str, object]:
    try:
        return tomllib.loads(job.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise JobError(f"there is no job file {job}", "the path of a TOML file", "check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise JobError(f"{job} is not TOML: {error}", "a TOML file in UTF-8", "check quotes and brackets") from None
    except OSError as error:
        raise JobError(f"the job file {job} cannot be read ({error})", "a TOML file in UTF-8") from None


def _giver(tables: Mapping[str, object], name: str) -> str | None:
    """Whose results go by a name that is no stream's: a function's, or a query's."""
    parts = {part: tables.get(part) for part in ("streams", "functions", "queries")}
    found = next((part for part, own in parts.items() if isinstance(own, Mapping) and name in own), "streams")
    return {"streams": None, "functions": "function", "queries": "query"}[found]


def _chosen(job: Path, tables: Mapping[str, object], wanted: str) -> tuple[str, JobFunction]:
    _, functions = read_tables(tables, str(job))
    if not functions:
        raise JobError(
            f"{job} has no function", "a table [functions.NAME]", "add [functions.spectra] with stream and function"
        )
    if wanted and wanted not in functions:
        raise JobError(f"{job} has no function {wanted!r}", "one of its functions", nearest(wanted, functions))
    if not wanted and len(functions) > 1:
        raise JobError(
            f"{job} has {len(functions)} functions", "--function NAME", f"--function {next(iter(functions))}"
        )
    name = wanted or next(iter(functions))
    return name, functions[name]


def _sample(
    job: Path, tables: Mapping[str, object], entry: JobFunction, n_windows: int, read: Reader
) -> tuple[list[list[WindowBatch]], StreamType]:
    stream = _stream(job, tables, entry.stream)
    time_column = stream.get("time")
    if not isinstance(time_column, str):
        raise JobError(
            f"{job}: [streams.{entry.stream}] time is missing", "the name of the time column", 'add time = "ts"'
        )
    spec = entry.spec
    n_rows = n_windows if spec.size is None else spec.size + (n_windows - 1) * spec.stride
    table = _rows(job, stream, n_rows, read)
    declared = infer_type(entry.stream, table.schema, time_column) if entry.type is None else find_type(entry.type)
    check_columns(declared, table.schema, entry.stream)
    columns = [time_column, *(c for f in declared.values for c in needed_columns(f, table.schema))]
    table = table.select(list(dict.fromkeys(columns)))
    edges = [table.num_rows * i // N_EPOCHS for i in range(N_EPOCHS + 1)]
    parts = [table.slice(a, b - a) for a, b in itertools.pairwise(edges)]
    return [to_batches(part.combine_chunks(), declared, time_column)[0] for part in parts], declared


def _stream(job: Path, tables: Mapping[str, object], name: str) -> StreamTable:
    found = tables.get("streams")
    streams = found if isinstance(found, dict) else {}
    if not isinstance(streams.get(name), dict):
        raise JobError(f"{job}: there is no stream {name!r}", "a table [streams.NAME]", nearest(name, streams))
    known: StreamTable = streams[name]
    return known


def _rows(job: Path, stream: StreamTable, n_rows: int, read: Reader) -> pa.Table:
    path = stream.get("path")
    if stream.get("format") == "parquet" and isinstance(path, str) and "://" not in path:
        folder = job.absolute().parent / path
        files = sorted(folder.glob("*.parquet")) if folder.is_dir() else [folder]
        tables: list[pa.Table] = []
        while files and sum(table.num_rows for table in tables) < n_rows:
            tables.append(_read(files.pop(0)))
        if not tables or not tables[0].num_rows:
            raise InputError(
                f"there are no Parquet files in {folder}", "the beginning of the stream", "write some rows first"
            )
        return pa.concat_tables(tables).slice(0, n_rows)
    located = path if path is None or "://" in path else str(job.absolute().parent / path)
    return read(stream, located, n_rows)


def _read(file: Path) -> pa.Table:
    try:
        return pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{file} cannot be read: {error}", "Parquet files", "check [streams.NAME] path") from None
