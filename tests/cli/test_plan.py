"""`braid plan`: slots for a completeness, completeness for slots, and what is wrong with the input."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from braidstream.cli import app, commands
from braidstream.control.completeness import Load, completeness_engine
from braidstream.errors import InputError

assert commands
BASIC = ["plan", "--rate", "50000", "--window", "10 minutes", "--memory", "512 MB"]


def planned(*arguments: str) -> dict[str, Any]:
    found = CliRunner().invoke(app, [*BASIC, *arguments, "--json"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    plain: dict[str, Any] = json.loads(found.output)
    return plain


@pytest.mark.parametrize("model", ["engine", "probing", "paper", "refusing"])
def test_the_slots_named_are_enough_and_one_fewer_is_not(model: str) -> None:
    wanted = planned("--completeness", "0.8", "--model", model)
    assert wanted["completeness"] >= 0.8
    fewer = planned("--slots", str(wanted["slots"] - 1), "--model", model)
    assert fewer["completeness"] < 0.8
    assert planned("--completeness", "1.0", "--model", "engine")["slots"] == wanted["slots_for_all"]


def test_the_default_is_what_the_engine_does() -> None:
    found = planned("--slots", "6")
    room = (512 << 20) / 100 / 2
    assert found["model"] == "engine"
    assert found["completeness"] == pytest.approx(completeness_engine([Load(50000, 600, room)] * 2, 6))


def test_long_epochs_lose_less() -> None:
    found = [planned("--slots", "6", *more)["completeness"] for more in ([], ["--epoch", "1 minute"])]
    assert found[1] == pytest.approx(found[0] + 15 / 16 * 30 / 600)


def test_one_slot_is_one_slot() -> None:
    one = ["plan", "--rate", "10", "--window", "1 minute", "--completeness", "1.0"]
    shown = CliRunner().invoke(app, one, catch_exceptions=False).output
    assert "1 slot: 100.0%" in shown


def test_a_table_is_shown() -> None:
    shown = CliRunner().invoke(app, [*BASIC, "--completeness", "0.95"], catch_exceptions=False).output
    assert "slots: 95" in shown.replace("\n", " ") or "slots: 9" in shown
    assert "kept of the windows" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "--rate", "1", "--window", "1 s"], "nothing is asked for"),
        ([*BASIC, "--slots", "2", "--model", "papr"], "did you mean 'paper'"),
        ([*BASIC, "--completeness", "95"], "a completeness of 95"),
        ([*BASIC, "--slots", "2", "--memory", "big"], "the size is 'big'"),
        ([*BASIC, "--slots", "2", "--streams", "3", "--rate", "5"], "--rate is given 2 times for 3 streams"),
        (["plan", "--window", "1 s", "--slots", "2"], "--rate is given 0 times"),
        ([*BASIC, "--slots", "2", "--tuple-bytes", "0"], "a tuple of 0"),
        ([*BASIC, "--slots", "-1"], "-1 slots"),
        ([*BASIC, "--slots", "2", "--shed-by", "unproductive"], "there is no formula for 'unproductive'"),
    ],
)
def test_bad_input_is_named(arguments: list[str], message: str) -> None:
    found = CliRunner().invoke(app, arguments)
    assert isinstance(found.exception, InputError)
    assert message in str(found.exception)
