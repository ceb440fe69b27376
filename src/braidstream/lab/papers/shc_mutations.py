"""SHC's mechanisms, broken one by one (`lab.papers.mutations`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from braidstream.control import grid_paper
from braidstream.epoch import regridder
from braidstream.lab.papers import shc_loads
from braidstream.lab.papers.mutations import Broken, mutation

__all__: list[str] = []


@mutation("shc fig4", "shc fig5", "shc fig6", "shc fig7", "shc loads")
def no_key_is_ever_heavy(broken: Broken) -> None:
    """3.2: candidates for a grid are never found, so that every key stays with one slot."""
    broken.set(shc_loads, "candidates", lambda *_: [])


@mutation("shc fig4-spark", "shc fig5-spark", "shc fig6-spark", "shc fig7-spark")
def the_engine_finds_no_heavy_key(broken: Broken) -> None:
    """3.2: after an epoch no key is a candidate for a grid, so that the engine routes all of them by hash."""
    broken.set(regridder, "candidates", lambda *_, **__: [])


@mutation("shc fig4", "shc fig5", "shc fig7", "shc fig4-spark", "shc fig5-spark", "shc fig7-spark")
def the_papers_rule_sees_no_heavy_key(broken: Broken) -> None:
    """3.2: by the paper's rule no key is heavy; ours is whole."""
    broken.set(grid_paper, "heavy_keys", lambda *_: [])


@mutation("shc fig6", "shc fig6-spark")
def a_grid_is_always_square(broken: Broken) -> None:
    """2.2: a grid has as many rows as columns, however unlike the two streams are."""
    wanted: Callable[..., Any] = grid_paper.desired_dims

    def square(*arguments: Any) -> tuple[float, ...]:
        dims = wanted(*arguments)
        return (max(dims),) * len(dims)

    broken.set(grid_paper, "desired_dims", square)
