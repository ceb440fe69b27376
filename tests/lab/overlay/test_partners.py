"""Partners under skew: more complete by 20 points or more, for at most one more message a tuple (DHTJoin 6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from braidstream.errors import InputError
from braidstream.lab.overlay.peer import Memory
from braidstream.lab.overlay.shared import Outcome, PartnerRule, Settings
from braidstream.lab.overlay.simulate import Scenario, simulate
from braidstream.lab.overlay.workload import Workload

SKEWED = Scenario(512, workload=Workload(zipf=1.2, query_every_s=20, joins=1, duration_s=200))


def limited(memory: int, partners: PartnerRule | None = None, seed: int = 1) -> Outcome:
    return simulate(replace(SKEWED, seed=seed, settings=Settings(memory=Memory(per_peer=memory), partners=partners)))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("memory", [60, 100])
def test_partners_raise_completeness_by_twenty_points_for_at_most_one_message_a_tuple(memory: int, seed: int) -> None:
    full = sum(simulate(replace(SKEWED, seed=seed)).results)
    alone, helped = limited(memory, seed=seed), limited(memory, PartnerRule(), seed)
    assert sum(helped.results) / full - sum(alone.results) / full >= 0.2
    assert helped.indexed == alone.indexed
    assert helped.counters["most_extra"] == 1  # no tuple is passed on twice
    assert helped.messages["partner"] <= helped.indexed
    assert helped.traffic - alone.traffic <= helped.indexed  # questions, orders and migration included
    assert helped.shed < alone.shed


def test_nobody_looks_for_partners_while_memory_suffices() -> None:
    outcome = limited(100_000, PartnerRule())
    assert outcome.counters == {"divisions": 0, "migrated": 0, "no_partner": 0, "most_extra": 0}
    assert "partner" not in outcome.messages


def test_a_lower_threshold_divides_earlier() -> None:
    early, late = (limited(100, PartnerRule(delta=delta)).counters["divisions"] for delta in (0.4, 1.0))
    assert early > late


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Settings(partners=PartnerRule()),
        lambda: PartnerRule(delta=0),
        lambda: Memory(per_peer=0),
    ],
)
def test_rules_that_make_no_sense_are_refused(wrong: object) -> None:
    with pytest.raises(InputError):
        wrong()  # type: ignore[operator]
