"""Damage to any file of a checkpoint is refused by the file's name, or harmless: no wrong answer, nothing destroyed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from braidstream.errors import DamagedState
from braidstream.lab.testing.harness import LocalOutlets
from braidstream.state import lease as leases
from tests.scale import examples
from tests.state.damage import DAMAGES, KINDS, Campaign, finished, flow_in, swap


@pytest.fixture(scope="module", autouse=True)
def _impatient() -> Iterator[None]:
    """Who finds a lease that cannot be read does not wait here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leases, "_TTL_S", 0.0)
        yield


@pytest.fixture(scope="module", params=KINDS)
def campaign(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return Campaign(tmp_path_factory.mktemp("campaign"), KINDS[request.param])


def test_damage_is_refused_or_harmless(campaign: Campaign) -> None:
    for seed in range(examples(16, least=3)):
        campaign.trial(seed)


def test_damaged_results_are_not_delivered_and_those_that_were_delivered_are_told(campaign: Campaign) -> None:
    for seed in range(1, 1 + examples(4, least=1)):  # seed 0 leaves the results of windows as they are
        campaign.staged_trial(seed)
        campaign.delivered_trial(seed)
    assert any(outcome == "refused" for kind, _, outcome in campaign.outcomes if kind == "staged/.parquet")
    assert any(outcome == "said" for _, _, outcome in campaign.outcomes)


@pytest.mark.acceptance
@pytest.mark.timeout(3 * 3600)
def test_a_thousand_damages(campaign: Campaign) -> None:
    """Of each sort of flow."""
    campaign.outcomes.clear()
    for seed in range(1000):
        (campaign.trial, campaign.trial, campaign.staged_trial, campaign.delivered_trial)[seed % 4](10_000 + seed)
    assert campaign.outcomes.total() == 1000
    for (kind, damage, outcome), n in sorted(campaign.outcomes.items()):
        print(f"{kind:24} {damage:6} {outcome:9} {n:4}")
    by_outcome = Counter[str]()
    for (_, _, outcome), n in campaign.outcomes.items():
        by_outcome[outcome] += n
    print(dict(by_outcome))


@pytest.mark.parametrize("damage", [one for one in DAMAGES if one is not swap], ids=lambda one: one.__name__)
def test_a_staged_file_that_was_changed_is_not_delivered(
    tmp_path: Path, damage: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = flow_in(tmp_path / "flow")
    expected = finished(flow_in(tmp_path / "whole"))
    plain = LocalOutlets.deliver
    victims = []

    def damaged(self: LocalOutlets, outlet: object, number: int, files: list[object]) -> None:
        root = self.staging(outlet).root or ""  # type: ignore[arg-type]
        victims.extend(Path(root) / file.name for file in files[:1])  # type: ignore[attr-defined]
        if victims:
            damage(random.Random(number), victims[0], victims[0])
        plain(self, outlet, number, files)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalOutlets, "deliver", damaged)
    with pytest.raises(DamagedState, match="this staged file") as caught:
        finished(flow)
    assert caught.value.path == str(victims[0])
    monkeypatch.undo()
    flow.restart()
    assert finished(flow) == expected
