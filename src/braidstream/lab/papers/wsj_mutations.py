"""WSJ's mechanisms, broken one by one (`lab.papers.mutations`)."""

from __future__ import annotations

from braidstream.control.policies.declustering import Declustering
from braidstream.control.policies.suppliers import Suppliers
from braidstream.kernels import blocks
from braidstream.lab.papers import wsj_spark
from braidstream.lab.papers.mutations import Broken, mutation
from braidstream.lab.sim import points, virtual_cluster
from braidstream.lab.sim.demand import TUPLE_BYTES, Demand
from braidstream.lab.sim.virtual_cluster import Cluster
from braidstream.model.directory import Directory
from braidstream.spark import flow
from braidstream.spark.declared import trigger_of

__all__: list[str] = []


@mutation("wsj fig5")
def no_supplier_yields(broken: Broken) -> None:
    """IV-C: an overloaded slave keeps all its groups."""
    broken.set(Suppliers, "suggest", lambda *_: [])


@mutation("wsj fig11", "wsj fig11-spark")
def no_slot_is_given_up(broken: Broken) -> None:
    """V-A: the degree of declustering never changes."""
    broken.set(Declustering, "suggest", lambda *_: [])


@mutation("wsj fig6", "wsj fig7", "wsj fig8", "wsj fig10")
def groups_are_never_tuned(broken: Broken) -> None:
    """IV-D: theta is forgotten, so that a new tuple is compared with its whole group."""
    _with_theta(broken, None)


@mutation("wsj fig9")
def groups_are_always_tuned(broken: Broken) -> None:
    """IV-D: groups are tuned where they must not be."""
    _with_theta(broken, points.THETA_ROWS)


def _with_theta(broken: Broken, theta_rows: int | None) -> None:
    whole = Demand.__init__

    def other(self: Demand, *arguments: object, **options: object) -> None:
        whole(self, *arguments, **{**options, "theta_rows": theta_rows})  # type: ignore[arg-type]

    broken.set(Demand, "__init__", other)


@mutation("wsj fig12")
def slaves_are_served_at_once(broken: Broken) -> None:
    """III: the master serves all slaves at the same time instead of in turn."""

    def at_once(self: Cluster, tick: int, subgroup: int) -> None:
        for slave in self.slaves[: self.n_slots]:
            if slave.slot % self.settings.n_subgroups == subgroup:
                batches = self._drained(slave.slot, tick)
                n_bytes = TUPLE_BYTES * sum(batch.n_tuples for batch in batches)
                slave.expect(batches)
                self.clock.at(self.clock.now + self.settings.network.transfer_s(n_bytes), slave.receive)

    broken.set(Cluster, "_distribute", at_once)


@mutation("wsj fig13", "wsj fig14")
def the_master_ignores_the_epoch(broken: Broken) -> None:
    """IV-A: the master distributes every 6 s, whatever the distribution epoch."""
    distribute, every_s = Cluster._distribute, 6.0

    def seldom(self: Cluster, tick: int, subgroup: int) -> None:
        before, now = ((tick - some) * self.demand.tick_s // every_s for some in (1, 0))
        if now > before:
            distribute(self, tick, subgroup)

    broken.set(Cluster, "_distribute", seldom)


@mutation("wsj fig13-spark", "wsj fig14-spark")
def the_engine_ignores_the_epoch(broken: Broken) -> None:
    """IV-A: the engine distributes every 2 s, whatever epoch is asked for."""
    broken.set(flow, "trigger_of", lambda _epoch: trigger_of("2 seconds"))
    broken.set(wsj_spark, "_epochs", wsj_spark._epochs.__wrapped__)  # what was run is remembered


@mutation("wsj fig5-spark", "wsj fig6-spark")
def one_slot_has_all_groups(broken: Broken) -> None:
    """III: every partition is at the first slot, however many there are."""
    whole = Directory.of
    broken.set(Directory, "of", staticmethod(lambda n_groups, *_, **__: whole(n_groups, 1)))


@mutation("wsj fig6-spark")
def a_supplier_keeps_what_it_has(broken: Broken) -> None:
    """IV-C: no slot ever yields a group to another."""
    broken.set(Suppliers, "suggest", lambda *_: [])


@mutation("wsj buffer")
def sub_groups_wait_for_each_other(broken: Broken) -> None:
    """V-B: all slaves are served at the end of the epoch, as if there were one sub-group."""
    distribute = Cluster._distribute

    def together(self: Cluster, tick: int, _subgroup: int) -> None:
        if tick % self.settings.n_subgroups == 0:
            for subgroup in range(self.settings.n_subgroups):
                distribute(self, tick, subgroup)

    broken.set(virtual_cluster.Cluster, "_distribute", together)


@mutation("wsj tactics")
def mini_groups_never_split(broken: Broken) -> None:
    """IV-D: a group stays one mini-group, however large its window."""
    broken.set(blocks.BlockJoin, "_is_splittable", lambda *_: False)
