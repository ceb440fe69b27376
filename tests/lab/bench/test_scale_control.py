"""What deciding costs at many slots is measured of everything that the driver decides, whatever the number of slots."""

from __future__ import annotations

import pytest

from braidstream.lab.bench.scale_control import Scale, control_ms


@pytest.mark.parametrize("n_slots", [2, 20])
def test_each_decision_is_measured(n_slots: int) -> None:
    found = control_ms(n_slots, 4, repeats=1)
    assert {"reports decoded", "figures of an epoch", "measures counted", "probing", "grids", "candidates"} <= set(
        found
    )
    assert sum(name.startswith("controller") for name in found) == 3
    assert all(ms >= 0 for ms in found.values())


def test_what_is_made_up_gives_the_controller_something_to_do() -> None:
    scale = Scale(20, 4)
    assert len(scale.directory) == 80
    assert scale.figures().slots.tolist() == [*range(20)] * scale.n_epochs
    assert any(one.is_expired for one in scale.memories)
    assert len(scale.family.candidates) == 160
