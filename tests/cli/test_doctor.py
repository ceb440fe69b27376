"""The doctor finds what is wrong and says what to do; versions and completion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from braidstream import __version__
from braidstream.cli import app, checkup, commands
from braidstream.cli.checkup import Finding
from tests.cli.workshop import Braid

assert commands


def fake_java(folder: Path, version: str) -> None:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    java.chmod(0o755)


def named(findings: list[Finding], name: str) -> Finding:
    return next(finding for finding in findings if finding.name == name)


def test_this_machine_is_well(braid: Braid, tmp_path: Path) -> None:
    told = braid("doctor", tmp_path / "not" / "made" / "yet", "--no-spark", "--json")
    assert told.code == 0, told.out
    said = json.loads(told.out)
    assert said["well"]
    assert said["versions"]["braid"] == __version__
    names = {finding["name"]: finding for finding in said["findings"]}
    extras = [f"extra {name}" for name in ("delta", "s3", "dashboard", "metrics")]
    for name in ("Java", "Python", "pyspark", "pyarrow", "clock", "memory", "scratch space", *extras):
        assert name in names
    assert names["pyspark"]["holds"] is True
    assert list(tmp_path.iterdir()) == [], "a folder that is looked at is left as it was"


@pytest.mark.parametrize(
    ("version", "holds", "found"),
    [("1.8.0_392", False, "8.0_392"), ("11.0.2", False, "11.0.2"), ("17.0.15", True, "17.0.15"), ("21", True, "21")],
)
def test_java_must_be_new_enough(
    version: str, holds: bool, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java = named(list(checkup.here()), "Java")
    assert java.holds is holds
    assert java.found.startswith(found)
    assert ("JAVA_HOME" in java.remedy) is not holds


def test_without_java_spark_is_not_tried_and_the_exit_code_is_1(
    braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    told = braid("doctor")
    assert told.code == 1
    assert "no Java runs" in told.out
    assert "not tried without Java" in told.out
    assert "2 wrong: Java, Spark" in told.out


def test_a_folder_that_cannot_be_written_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (finding,) = checkup.place(str(tmp_path / "file"))
    assert finding.holds is False
    assert "may write to" in finding.remedy
    (unknown,) = checkup.place("nowhere://bucket/folder")
    assert unknown.holds is False
    assert "credentials" in unknown.remedy
    written, room = checkup.place(f"copy+file://{tmp_path}"), list(checkup.place(str(tmp_path)))
    assert [finding.holds for finding in [*written, *room]] == [True, True, True]


@pytest.mark.parametrize(
    ("version", "requirement", "fits"),
    [
        ("4.3.0", "pyspark<5,>=4.1", True),
        ("5.0.0", "pyspark<5,>=4.1", False),
        ("4.0.2", "pyspark<5,>=4.1", False),
        ("30.1.dev2", "sqlglot>=30", True),
        ("2.0", "numpy>=2.0.0", False),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, requirement: str, fits: bool) -> None:
    assert checkup._fits(version, requirement) is fits


def test_workers_that_differ_are_named() -> None:
    packages = {"braidstream": "", "pyarrow": "18.0", "numpy": "2.0"}
    seen = [{"host": h, "python": "3.9.1", "packages": packages, "clock": at} for h, at in (("a", 0.0), ("b", 9.0))]
    findings = list(checkup._workers(seen, 9.0))
    assert named(findings, "Python on workers").remedy.startswith("set PYSPARK_PYTHON")
    assert named(findings, "braidstream on workers").found == "not installed"
    assert named(findings, "pyarrow on workers").holds
    assert "NTP" in named(findings, "clock on workers").remedy


@pytest.mark.spark
def test_the_workers_of_a_session_are_asked(spark: object, tmp_path: Path) -> None:
    findings = list(checkup.cluster(spark, [str(tmp_path)]))
    assert all(finding.holds for finding in findings), findings
    assert named(findings, "braidstream on workers").found == __version__


def test_versions_of_what_it_stands_on() -> None:
    lines = CliRunner().invoke(app, ["--version"]).output.splitlines()
    assert lines[0] == f"braid {__version__}"
    assert [line.split()[0] for line in lines] == ["braid", "Spark", "Java", "Arrow", "Python"]


def test_the_shell_completes_commands() -> None:
    asked = {"_BRAID_COMPLETE": "complete_bash", "COMP_WORDS": "braid do", "COMP_CWORD": "1"}
    assert "doctor" in CliRunner().invoke(app, [], env=asked, prog_name="braid").output
