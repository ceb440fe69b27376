"""Which joins are suspended when a stream falls silent, as tables of before and after."""

from __future__ import annotations

import pytest

from braidstream.control.suspension import suspend

S = 1_000_000
# (A ⋈ B) waits for C, ((A ⋈ B) ⋈ C) waits for D.
SIBLINGS = {"AB": frozenset({"C"}), "ABC": frozenset({"D"})}
PARENTS = {"AB": "ABC", "ABC": "ABCD"}
ALL = {"A": 100 * S, "B": 100 * S, "C": 100 * S, "D": 100 * S}

CASES = [
    pytest.param(ALL, set("ABCD"), {}, {}, {}, id="nobody is silent: nothing is suspended"),
    pytest.param({**ALL, "C": 80 * S}, set("ABD"), {}, {"AB": 7}, {}, id="C is silent: what waits for C is suspended"),
    pytest.param(
        {**ALL, "D": 80 * S}, set("ABC"), {}, {"AB": 7, "ABC": 7}, {}, id="D is silent: so is what feeds only that"
    ),
    pytest.param({**ALL, "A": 80 * S}, set("BCD"), {}, {}, {}, id="a silent stream below a join suspends nothing"),
    pytest.param({**ALL, "C": 95 * S}, set("ABD"), {}, {}, {}, id="silence within the limit is no silence"),
    pytest.param(
        {k: v for k, v in ALL.items() if k != "C"}, set("ABD"), {}, {"AB": 7}, {}, id="who never spoke is silent"
    ),
    pytest.param({**ALL, "C": 80 * S}, set("ABD"), {"AB": 3}, {"AB": 3}, {}, id="the epoch of the suspension is kept"),
    pytest.param(ALL, set("ABCD"), {"AB": 3}, {}, {"AB": 3}, id="C speaks again: its join resumes from there"),
    pytest.param({**ALL, "C": 80 * S}, set("ABCD"), {"AB": 3}, {}, {"AB": 3}, id="even an old tuple is a sign of life"),
]


@pytest.mark.parametrize(("newest", "spoke", "memory", "suspended", "resumed"), CASES)
def test_suspension(
    newest: dict[str, int], spoke: set[str], memory: dict[str, int], suspended: dict[str, int], resumed: dict[str, int]
) -> None:
    decided = suspend(SIBLINGS, PARENTS, newest, spoke, 10 * S, memory, epoch=7)
    assert (dict(decided.suspended), dict(decided.resumed)) == (suspended, resumed)


def test_without_a_limit_nothing_is_ever_suspended() -> None:
    assert not suspend(SIBLINGS, PARENTS, {**ALL, "C": 0}, set("ABD"), None, {}, epoch=7).suspended
