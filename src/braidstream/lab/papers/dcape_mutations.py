"""D-CAPE's mechanisms, broken one by one (`lab.papers.mutations`)."""

from __future__ import annotations

from braidstream.control.policies import spilling
from braidstream.lab.papers.mutations import Broken, mutation

__all__: list[str] = []


@mutation("dcape fig11", "dcape fig17", "dcape fig20")
def productivity_is_turned_around(broken: Broken) -> None:
    """4.3: what gives the most results is pushed first."""
    broken.set(spilling, "_rank", lambda one, *_: (one.bytes / max(one.outputs, 1.0), one.group))
