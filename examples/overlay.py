"""A join over a wide-area network: a peer fails, memory runs short, a skewed peer finds partners.

.venv/bin/python examples/overlay.py
"""

from __future__ import annotations

from dataclasses import replace

from braidstream.control.completeness import MODELS, Load, nodes_for
from braidstream.control.completeness import completeness as equation_11
from braidstream.lab.overlay import Failure, Memory, PartnerRule, Scenario, Settings, Workload, completeness, simulate


def main() -> None:
    # The paper's streams, queries and skew for a minute, on 64 peers of a Chord ring.
    workload = Workload(duration_s=60, window_s=10, query_every_s=20, zipf=1.2)
    scenario = Scenario(64, workload=workload)
    full = simulate(scenario)
    print(f"{sum(full.results)} results, {full.traffic} messages")
    print(f"RJoin: the same results with {simulate(replace(scenario, method='rjoin')).traffic} messages")

    def tell(what: str, settings: Settings) -> None:
        outcome = simulate(replace(scenario, settings=settings))
        print(f"{what}: {completeness(outcome, full):.0%} of the results, {outcome.traffic} messages")

    ring = scenario.ring()
    busiest = int(ring.owner(ring.keys_of_values([1]))[0])  # it joins the most frequent value
    tell("the busiest peer fails after 30 s", Settings(failures=(Failure(busiest, 30),)))
    small = Settings(memory=Memory(per_peer=25))
    tell("room for 25 tuples a peer", small)
    tell("the same, with partners", replace(small, partners=PartnerRule()))

    # How many peers does a 3-way join need to be 90% complete? Each keeps 100 tuples of a stream.
    loads = [Load(rate=200, window_s=10, memory=100)] * 3
    print(f"equation 12 says {nodes_for(loads, 0.9, equation_11)} peers", end=", ")
    print(f"the exact models {nodes_for(loads, 0.9, MODELS['sample'])} that sample", end=", ")
    print(f"{nodes_for(loads, 0.9)} that refuse what does not fit")


if __name__ == "__main__":
    main()
