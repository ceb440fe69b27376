"""The routers of a flow: how rows of one key are spread over slots.

    hash        all rows of a key at the slot of its group (parallel hash join)
    auto        hash, until a key is heavy: then the grid that evens the slots' load (the default)
    grid        the same with a choice of rule; rule = "paper" is SHC 3.2 to the letter
    biclique    half of the slots store one side, half the other; rows probe across (`kernels.biclique`)

The first three may be changed at a restart: state that was stored in grids is read whatever the router. A biclique's
state has another layout, so a checkpoint stays a biclique's, with its slots; it is a baseline, for queries whose joins
are of two different streams, without controller and aggregates. Wrong names are refused before anything starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from braidstream.control.controller import Controller
from braidstream.control.regridding import GridSettings
from braidstream.epoch.regridder import GridRouter
from braidstream.errors import CheckpointMismatch, InputError
from braidstream.model.join_kinds import JoinKind
from braidstream.model.stores import Join, Store
from braidstream.options import RouterOptions
from braidstream.state.manifest import Manifest

__all__ = ["Routing"]

_BICLIQUE = "biclique"


@dataclass(frozen=True)
class Routing(RouterOptions):
    """Which router, for grids by which rule, and for a biclique with how many subgroups (None: a quarter of slots)."""

    def under(self, on_overflow: str) -> Routing:
        """The routing of a flow that does this beyond its memory: where tuples are shed, keys get no grids.

        How complete the answer is gets counted by groups, and cells know nothing of what was shed.
        """
        return Routing("hash") if on_overflow == "shed" else self

    def biclique(self, n_slots: int) -> int | None:
        """What the first manifest remembers of the router: the subgroups of a biclique."""
        if self.router != _BICLIQUE:
            return None
        return max(n_slots // 4, 1) if self.subgroups is None else self.subgroups

    def steered(self, controller: Controller | bool | None) -> Controller | None:
        """A flow's controller: the usual one unless another is named; none over a biclique, whose layout is fixed."""
        if controller is True:
            return None if self.router == _BICLIQUE else Controller()
        return controller or None

    def check(self, stores: Sequence[Store], joins: Sequence[Join], options: Mapping[str, object]) -> None:
        """Refuse what a biclique cannot do. `options` are those of the flow that it has no use for."""
        if self.router != _BICLIQUE:
            return
        for name, value in options.items():
            if value is not None:
                raise InputError(f"router {_BICLIQUE!r} with {name}", f"no {name}", 'use router = "auto"')
        inner = all(join.kind is JoinKind.INNER and not join.is_unkeyed for join in joins)
        pairs = inner and all(len({entry.store for entry in join.inputs}) == 2 == len(join.inputs) for join in joins)
        if not pairs or any(store.derived or len(store.places) != 1 or max(store.places) > 1 for store in stores):
            raise InputError(
                f"router {_BICLIQUE!r} with these queries",
                "inner joins of two streams on a key, each stream and key in one of them, without aggregates",
                'use router = "auto"',
            )

    def check_restart(self, manifest: Manifest, slots: int | None) -> None:
        """Refuse a checkpoint whose state has another layout."""
        was = manifest.notes.biclique is not None
        if was != (self.router == _BICLIQUE):
            shown = "of a biclique" if was else "not of a biclique"
            raise CheckpointMismatch(
                f"the router is {self.router!r}, and the checkpoint's state is {shown}",
                "the router that the checkpoint was made with",
                "start with a new checkpoint folder",
            )
        if was and slots not in (None, manifest.n_slots):
            raise CheckpointMismatch(
                f"{slots} slots, and the checkpoint is of a biclique of {manifest.n_slots}",
                "the same number",
                "start with a new checkpoint folder",
            )

    def regridder(self) -> GridRouter | None:
        """What gives keys their grids; None where none gets one."""
        if self.router in ("hash", _BICLIQUE):
            return None
        return GridRouter(GridSettings("paper" if self.rule == "paper" else "even", self.epsilon))
