"""DHTJoin on a simulated Chord network: stream joins over a wide-area network instead of one cluster."""

from braidstream.overlay.run import Outage, Outcome, PartnerRule, Settings
from braidstream.overlay.simulate import Scenario, simulate
from braidstream.overlay.workload import Feed, Submission, Workload

__all__ = [
    "Feed",
    "Outage",
    "Outcome",
    "PartnerRule",
    "Scenario",
    "Settings",
    "Submission",
    "Workload",
    "simulate",
]
