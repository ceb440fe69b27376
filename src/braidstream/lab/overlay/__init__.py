"""DHTJoin on a simulated Chord network: stream joins over a wide-area network instead of one cluster."""

from braidstream.lab.overlay.peer import Memory
from braidstream.lab.overlay.shared import Failure, Outage, Outcome, PartnerRule, Settings
from braidstream.lab.overlay.simulate import Scenario, completeness, simulate
from braidstream.lab.overlay.workload import Feed, Submission, Workload

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
