"""What a column is called changes no result: also names that the engine has for columns of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from braidstream.control.overflow import Overflow
from braidstream.errors import QueryError
from braidstream.kernels.rows import stored_name, user_name
from braidstream.lab.testing.queries import QueryHarness
from braidstream.state.segments import Place, open_segment
from tests.kernels.test_streams_join import crowded, often_compacted

NAMES = (
    "__h", "__t", "__m", "__k", "__k0", "__k1", "__e", "__d", "__g", "__r", "__o", "__h@0", "__k0@1", "__other",
    "hash of CAST(`k` AS bigint)", "value of CAST(`k` AS bigint)", "hash", "key 0", "recovered", "epoch", "watermark",
    "\x1f__e", "a.b", "R.v", "a`b", "a'b", 'a"b', "with space", "ü 😀", "a:b", "s:0:a", "+n", "=k", "<v", "slot", "~",
)  # fmt: skip
ALIASES = ("__k", "__e", "epoch", "__h", "recovered", "R", "x y")
QUERIES = {
    "flat": "SELECT {r}.{v} AS rv, {s}.{w} AS sw, {r}.{k} AS {k} FROM R [RANGE 5 SECONDS] AS {r}, "
    "S [RANGE 5 SECONDS] AS {s} WHERE {r}.{k} = {s}.{j}",
    "filtered": "SELECT {r}.{v} AS rv, {s}.{w} AS sw FROM R [RANGE 5 SECONDS] AS {r}, "
    "S [RANGE 5 SECONDS] AS {s} WHERE {r}.{k} = {s}.{j} AND {r}.{v} % 2 = 0",
    "predicate": "SELECT {r}.{v} + {s}.{w} AS {w} FROM R [RANGE 5 SECONDS] AS {r}, "
    "S [RANGE 5 SECONDS] AS {s} WHERE {r}.{k} = {s}.{j} AND {r}.{v} < {s}.{w}",
    "tree": "SELECT {r}.{v} AS {v}, {t}.{u} AS {u}, {s}.{i} AS {i} FROM R [RANGE 5 SECONDS] AS {r}, "
    "S [RANGE 5 SECONDS] AS {s}, T [RANGE 5 SECONDS] AS {t} WHERE {r}.{k} = {s}.{j} AND {s}.{i} = {t}.{l}",
}
COLUMNS = {"R": ("k", "v"), "S": ("j", "i", "w"), "T": ("l", "u")}


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def texts(names: dict[str, str]) -> dict[str, str]:
    spelled = {place: quoted(name) for place, name in names.items()}
    return {name: text.format(**spelled) for name, text in QUERIES.items()}


def epochs(random: Random, names: dict[str, str]) -> list[dict[str, pa.Table]]:
    """The same rows for the same seed, whatever their columns are called."""
    made = []
    for epoch in range(4):
        tables = {}
        for stream, columns in COLUMNS.items():
            rows: dict[str, Any] = {
                names[column]: pa.array([random.choice([1, 2, 3, None]) for _ in range(12)], pa.int64())
                for column in columns
            }
            times = [epoch * 3_000_000 + random.randrange(3_000_000) for _ in range(12)]
            tables[stream] = pa.table({**rows, "ts": pa.array(times).cast(pa.timestamp("us", "UTC"))})
        made.append(tables)
    return made


def run(
    folder: Path, names: dict[str, str], seed: int, queries: Sequence[str] = tuple(QUERIES), **options: Any
) -> tuple[dict[str, Counter[Any]], list[Any]]:
    made = epochs(Random(seed), names)
    schemas = {stream: table.schema for stream, table in made[0].items()}
    with often_compacted():
        asked = {name: text for name, text in texts(names).items() if name in queries}
        harness = QueryHarness(folder, schemas, asked, slots=2, groups=4, **options)
        for place, tables in enumerate(made):
            harness.epoch(tables)
            if place == 1:
                harness.restart()
    late = [tuple(row.values()) for stream in COLUMNS for row in harness.late(stream)] if options.get("late") else []
    return {name: Counter(tuple(row.values()) for row in harness.results(name)) for name in queries}, sorted(
        late, key=repr
    )


PLAIN = {c: c for columns in COLUMNS.values() for c in columns} | {"r": "r", "s": "s", "t": "t"}


def odd(random: Random) -> dict[str, str]:
    columns = [column for own in COLUMNS.values() for column in own]
    return dict(
        zip([*columns, "r", "s", "t"], [*random.sample(NAMES, len(columns)), *random.sample(ALIASES, 3)], strict=True)
    )


@pytest.mark.parametrize("seed", range(6))
def test_results_do_not_depend_on_names(tmp_path: Path, seed: int) -> None:
    """Joins of one stage and of two, filtered, with predicates, late rows; also where hashes collide."""
    random = Random(seed)
    options: dict[str, Any] = {"late": True, **({"hash_keys": crowded(3)} if seed % 2 else {})}
    expected = run(tmp_path / "plain", PLAIN, seed, **options)
    found = run(tmp_path / "odd", odd(random), seed, **options)
    assert found == expected
    assert all(rows.total() > 5 for rows in expected[0].values())


@pytest.mark.parametrize("name", ["__d", "__e", "__x", "v"])
def test_shedding_changes_no_value(tmp_path: Path, name: str) -> None:
    overflow = Overflow(600, "shed", shed_by="random")
    expected, _ = run(tmp_path / "all", PLAIN, 1, ["flat"])
    found, _ = run(tmp_path / "shed", PLAIN | {"v": name, "w": name}, 1, ["flat"], overflow=overflow)
    assert 0 < found["flat"].total() < expected["flat"].total()
    assert not found["flat"] - expected["flat"]


def test_aliases_and_columns_that_would_be_one_name_are_refused(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("b.c", pa.int64()), ("c", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
    text = (
        "SELECT `a`.`b.c` + `a.b`.`c` AS x FROM R [RANGE 5 SECONDS] AS `a`, R [RANGE 5 SECONDS] AS `a.b` "
        "WHERE `a`.k = `a.b`.k"
    )
    with pytest.raises(QueryError, match=r"two columns that are called 'a\.b\.c'"):
        QueryHarness(tmp_path, {"R": schema}, {"q": text})


@pytest.mark.parametrize("name", [*NAMES, "", "k"])
def test_stored_names_are_the_users_again(name: str) -> None:
    assert user_name(stored_name(name)) == name
    assert not stored_name(name).startswith(("__", "hash of ", "value of "))


OLD = {
    "R[CAST(`k` AS bigint)]": (["__h", "__t", "__k0", "__m", "__e", "a.__b", "__x", "v"], ["__e", "__x"]),
    "q:(R-S)": (["__h", "__t", "__k0", "__e", "R.__x", "S.v", "__a.b"], ["R.__x", "__a.b"]),
    "q:0123456789ab:-1:R": (["__h", "__g", "__t", "=k", "+n", "+s:__x:0", "<__x", "__r", "__o"], ["+s:__x:0", "<__x"]),
}


@pytest.mark.parametrize("store", OLD)
def test_segments_of_the_first_version_are_read(tmp_path: Path, store: str) -> None:
    """They hold names as they are: those of users get their stored names, those of the engine stay."""
    from braidstream.kernels.rows import Rows
    from braidstream.model.directory import Directory
    from braidstream.state.files import Files

    names, users = OLD[store]
    files = Files(str(tmp_path))
    files.make("segments")
    groups = list(Directory.of(1, 1).groups)
    table = pa.table({name: pa.array([1, 2], pa.int64()) for name in names})
    segment = Place(files, 0, 0, groups).write(Rows(table), store, None)
    opened = open_segment(files, segment).table.column_names
    assert [user_name(name).replace("\x1f", "") for name in opened] == names
    assert [old for old, new in zip(names, opened, strict=True) if old != new] == users
