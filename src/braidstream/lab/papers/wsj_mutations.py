"""WSJ's mechanisms, broken one by one (`lab.papers.mutations`)."""

from __future__ import annotations

from braidstream.control.policies.declustering import Declustering
from braidstream.lab.papers.mutations import Broken, mutation
from braidstream.lab.sim.demand import Demand

__all__: list[str] = []


@mutation("wsj fig11")
def no_slot_is_given_up(broken: Broken) -> None:
    """V-A: the degree of declustering never changes."""
    broken.set(Declustering, "suggest", lambda *_: [])


@mutation("wsj fig7", "wsj fig8", "wsj fig10")
def groups_are_never_tuned(broken: Broken) -> None:
    """IV-D: theta is forgotten, so that a new tuple is compared with its whole group."""
    whole = Demand.__init__

    def forgetful(self: Demand, *arguments: object, **options: object) -> None:
        whole(self, *arguments, **{**options, "theta_rows": None})  # type: ignore[arg-type]

    broken.set(Demand, "__init__", forgetful)
