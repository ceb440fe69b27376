"""The five papers as a reader cites them, and the names of their figures."""

from __future__ import annotations

import re
from dataclasses import dataclass

from braidstream.lab.papers.registry import How

__all__ = ["BIBLIOGRAPHY", "HOW", "Paper", "figure_name"]


@dataclass(frozen=True)
class Paper:
    """A paper: our short name for it, its title, authors and where it appeared."""

    short: str
    title: str
    authors: str
    venue: str


BIBLIOGRAPHY = {
    "wsj": Paper(
        "WSJ",
        "Parallelizing Windowed Stream Joins in a Shared-Nothing Cluster",
        "A. Chakraborty, A. Singh",
        "",
    ),
    "dhtjoin": Paper(
        "DHTJoin",
        "DHTJoin: Processing Continuous Join Queries Using DHT Networks",
        "W. Palma, R. Akbarinia, E. Pacitti, P. Valduriez",
        "Distributed and Parallel Databases, 2009",
    ),
    "gsdm": Paper(
        "GSDM", "Customizable Parallel Execution of Scientific Stream Queries", "M. Ivanova, T. Risch", "VLDB 2005"
    ),
    "dcape": Paper(
        "D-CAPE",
        "Adapting State-Intensive Non-Blocking Queries over Distributed Environments",
        "B. Liu, E. A. Rundensteiner",
        "WPI-CS-TR-05-04, 2005",
    ),
    "shc": Paper(
        "SHC",
        "Streaming HyperCube: A Massively Parallel Stream Join Algorithm",
        "Y. Qiu, S. Papadias, K. Yi",
        "EDBT 2019",
    ),
}

HOW: dict[How, str] = {
    "spark": "the engine ran on Spark on this machine, and its results were counted and timed",
    "simulated": "several virtual machines were simulated on this one: costs and clock are a model, decisions are not",
    "exact": "the code itself ran on this machine and what is shown was counted or timed, or computed from that",
}
"""What the three kinds of experiments mean."""

_WORDS = {"fig": "Figure", "table": "Table", "sec": "Section"}


def figure_name(figure: str) -> str:
    """`fig7a` as Figure 7a, `fig4-spark` as Figure 4 on Spark; a name of our own, such as `tactics`, as it is."""
    if (found := re.fullmatch(r"([a-z]+?)(\d+[a-z]?)(-spark)?", figure)) and found[1] in _WORDS:
        return f"{_WORDS[found[1]]} {found[2]}{' on Spark' if found[3] else ''}"
    return figure
