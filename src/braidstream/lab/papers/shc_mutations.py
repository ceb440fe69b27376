"""SHC's mechanisms, broken one by one (`lab.papers.mutations`)."""

from __future__ import annotations

from braidstream.lab.papers import shc_loads
from braidstream.lab.papers.mutations import Broken, mutation

__all__: list[str] = []


@mutation("shc fig4")
def no_key_is_ever_heavy(broken: Broken) -> None:
    """3.2: candidates for a grid are never found, so that every key stays with one slot."""
    broken.set(shc_loads, "candidates", lambda *_: [])
