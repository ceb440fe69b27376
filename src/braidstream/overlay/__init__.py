"""DHTJoin on a simulated Chord network: stream joins over a wide-area network instead of one cluster."""

from braidstream.overlay.peer import Memory
from braidstream.overlay.run import Failure, Outage, Outcome, PartnerRule, Settings
from braidstream.overlay.simulate import Scenario, completeness, simulate
from braidstream.overlay.workload import Feed, Submission, Workload

__all__ = [
    "Failure",
    "Feed",
    "Memory",
    "Outage",
    "Outcome",
    "PartnerRule",
    "Scenario",
    "Settings",
    "Submission",
    "Workload",
    "completeness",
    "simulate",
]
