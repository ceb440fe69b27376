"""Options are declared once: calls, job files, checks and the reference have the same ones, with the same words."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from dataclasses import MISSING, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from braidstream import Flow, InputError, JobError, jobs
from braidstream.control.settings import Settings
from braidstream.functions.jobfile import JobFunction
from braidstream.options import (
    FlowOptions,
    FunctionOptions,
    JobControl,
    JobFlow,
    JobQuery,
    JobSink,
    JobStream,
    JobTableOptions,
    Option,
    StartOptions,
    options_of,
    shown,
)
from braidstream.options.job_table import JobTable
from braidstream.options.kinds import Choice, Count, Duration, Flag, Number, Size, Text
from tests.cli.workshop import JOB
from tools.options import SECTIONS

FORMS: dict[str, type] = {
    "flow": JobFlow,
    "streams.R": JobStream,
    "tables.T": JobTableOptions,
    "queries.q": JobQuery,
    "queries.q.sink": JobSink,
    "functions.f": JobFunction,
    "control": JobControl,
}
PARTNERS: dict[str, dict[str, Any]] = {
    "rule": {"router": "grid"},
    "subgroups": {"router": "biclique"},
    "epsilon": {"router": "grid", "rule": "paper"},
    "placement": {"slots": 4},
    "strategies": {"degrees": [2, 2], "split": "cut:halves", "combine": "cut:whole"},
    "min_slots": {"max_slots": 64},
    "value": {"format": "kafka", "schema": "k long, ts timestamp"},
    "streams.R.bad": {"format": "kafka", "schema": "k long, ts timestamp", "value": "json"},
}
"""What an option needs beside it."""
CASES = [
    pytest.param(place, one, id=f"{place}-{one.name}")
    for place, form in FORMS.items()
    for one in options_of(form).values()
    if one.job
]


def keywords(call: Callable[..., Any]) -> dict[str, Any]:
    known = inspect.signature(call).parameters
    return {name: one.default for name, one in known.items() if name not in ("self", "spark")}


def test_calls_have_a_keyword_for_each_option_and_no_other() -> None:
    for call, form in ((Flow.__init__, FlowOptions), (Flow.start, StartOptions)):
        declared = {name: one.default for name, one in options_of(form).items()}
        assert {k: MISSING if v is inspect.Parameter.empty else v for k, v in keywords(call).items()} == declared


def test_job_files_have_a_line_for_each_option_and_no_other() -> None:
    assert set(options_of(JobFlow)) == {*options_of(FlowOptions), *options_of(StartOptions)}
    assert set(options_of(JobControl)) == {*options_of(Settings), "enabled"}
    assert set(options_of(JobFunction)) == set(options_of(FunctionOptions))
    for form in FORMS.values():
        assert [field.name for field in fields(form)] == list(options_of(form))
    assert {one.name for one in options_of(JobFlow).values() if not one.job} == {"warm", "wait"}


def test_the_reference_has_a_section_for_each_of_them() -> None:
    listed = {name for form, *_ in SECTIONS for name in options_of(form)}
    assert listed == {name for form in FORMS.values() for name in options_of(form)}


def table(place: str, values: dict[str, Any]) -> JobTable:
    given = {name: one.example for name, one in options_of(FORMS[place]).items() if one.is_required}
    return JobTable("job.toml", place, {**given, **values})


@pytest.mark.parametrize(("place", "one"), CASES)
def test_its_example_is_accepted_by_a_call_and_by_a_job_file(place: str, one: Option) -> None:
    form, values = (
        FORMS[place],
        {one.name: one.example, **PARTNERS.get(one.name, PARTNERS.get(f"{place}.{one.name}", {}))},
    )
    made = table(place, values).read(form)
    if not isinstance(one.example, dict):
        assert vars(made)[one.name] == one.example
    assert one.doc
    assert shown(one.example) in one.written
    one.check(one.example)
    if not one.is_required:
        one.check(one.default)


def wrong(one: Option, draw: random.Random) -> list[Any]:
    """Values that it cannot have, of its own type and of another."""
    kind = one.kind
    if isinstance(kind, Count):
        beyond = [] if kind.most is None else [kind.most + draw.randint(1, 1 << 40)]
        return [kind.least - draw.randint(1, 1000), draw.random() + 0.5, "7", *beyond]
    if isinstance(kind, Number):
        lows = [limit - draw.random() - 1e-9 for limit in (kind.least, kind.above) if abs(limit) != float("inf")]
        highs = [limit + draw.random() + 1e-9 for limit in (kind.most, kind.below) if limit != float("inf")]
        return [*lows, *highs, "0.5", float("nan")]
    if isinstance(kind, Choice):
        return ["".join(draw.choices("abcdef", k=9)), 3]
    if isinstance(kind, Duration):
        return [f"-{draw.randint(1, 9)} seconds", f"{draw.randint(1, 9)}", "some seconds", draw.random()]
    if isinstance(kind, Size):
        return [str(draw.randint(0, 1000)), "0 MB", "much", draw.random()]
    return ["yes", 1] if isinstance(kind, Flag) else [draw.randint(0, 9), [["x"]], True]


@pytest.mark.parametrize(("place", "one"), CASES)
def test_what_is_out_of_range_is_refused_by_name_in_the_same_words(place: str, one: Option) -> None:
    draw = random.Random(one.name)
    for value in wrong(one, draw):
        with pytest.raises(InputError) as by_call:
            one.check(value)
        with pytest.raises(JobError) as by_file:
            table(place, {one.name: value}).read(FORMS[place])
        assert one.name in by_call.value.wrong
        assert by_call.value.expected
        assert by_call.value.fix
        assert by_file.value.wrong.startswith("job.toml: [")
        assert f"[{place}] {one.name}" in by_file.value.wrong
        if by_file.value.wrong == f"job.toml: [{place}] {by_call.value.wrong}":
            assert (by_file.value.expected, by_file.value.fix) == (by_call.value.expected, by_call.value.fix)
        else:  # what is not in the form of a file: a number for a length of time, true for a number
            assert not one.kind.is_plain(value) or isinstance(value, bool) or isinstance(one.example, dict)


@pytest.mark.parametrize("name", [name for name, one in options_of(FlowOptions).items()])
def test_a_flow_refuses_what_a_job_file_refuses_before_it_looks_at_its_session(tmp_path: Path, name: str) -> None:
    one = options_of(FlowOptions)[name]
    for value in wrong(one, random.Random(name)):
        with pytest.raises(InputError) as by_call:
            Flow(None, **{name: value})  # type: ignore[arg-type]
        assert by_call.value.wrong.startswith(name)
        if one.kind.is_plain(value) and not isinstance(value, (bool, float)):
            path = tmp_path / "job.toml"
            lines = [line for line in JOB.splitlines() if not line.startswith(f"{name} =")]
            text = "\n".join(lines).replace("[flow]", f"[flow]\n{name} = {shown(value)}")
            path.write_text(text, encoding="utf-8")
            with pytest.raises(JobError) as by_file:
                jobs.read(path)
            assert by_file.value.wrong == f"{path}: [flow] {by_call.value.wrong}"
            assert (by_file.value.expected, by_file.value.fix) == (by_call.value.expected, by_call.value.fix)


@pytest.mark.parametrize(
    ("form", "values", "told"),
    [
        (FlowOptions, {"rule": "paper"}, "the rule 'paper' with router 'auto'"),
        (FlowOptions, {"subgroups": 2}, "2 subgroups with router 'auto'"),
        (FlowOptions, {"router": "grid", "on_overflow": "shed"}, "router 'grid' with on_overflow 'shed'"),
        (Settings, {"consumer_below": 0.6}, "consumer_below is 0.6"),
        (Settings, {"split_above": 0.1}, "merge_below is 0.1"),
        (Settings, {"max_slots": 2, "min_slots": 3}, "min_slots is 3"),
        (FlowOptions, {"slot": 2}, "FlowOptions has no option 'slot'(.|\n)*did you mean 'slots'"),
    ],
)
def test_what_does_not_go_together_is_refused(form: type, values: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        form(**values)


def test_python_has_more_ways_to_say_a_length_and_a_size() -> None:
    said = FlowOptions(silence=timedelta(seconds=3), memory=1 << 20)
    assert (said.silence, said.memory) == (timedelta(seconds=3), 1 << 20)
    for line in ("memory = 512", "silence = 5"):
        name, _, number = line.partition(" = ")
        with pytest.raises(JobError, match=rf"\[flow\] {name} is {number}(.|\n)*write {name} = \""):
            table("flow", {name: int(number)}).read(JobFlow)


def test_an_empty_name_of_a_job_is_the_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(JOB.replace('name = "pairs"', 'name = ""'), encoding="utf-8")
    assert jobs.read(path).flow.name == "mine"


def test_texts_may_be_paths_only_where_they_name_one() -> None:
    assert Text(is_path=True).problem(Path("x")) is None
    assert Text().problem(Path("x")) is not None
