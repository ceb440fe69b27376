"""The data-flow graph of a plan: its nodes and arcs, as Graphviz text or as a picture (GSDM's figures 6, 9 and 10).

Plans of functions that feed one another are one graph, from the first's to the last's.

Invariant: the graph has a node for every node of every stage, and an arc wherever windows flow. Cost: O(nodes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from braidstream.errors import InputError
from braidstream.functions.chains import joined_names
from braidstream.functions.templates import FunctionPlan
from braidstream.pictures import COLORS, GREY, drawing, head, save

__all__ = ["Graph", "draw", "graph_of", "to_dot"]

MOST_DRAWN = 64
Node: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Graph:
    """Nodes (stage, number) with their labels, and the arcs between them."""

    labels: dict[Node, str]
    arcs: tuple[tuple[Node, Node], ...]


def graph_of(plan: FunctionPlan | Sequence[FunctionPlan]) -> Graph:
    """The graph of a plan, from the node that takes the stream to the node that gives the results; or of several."""
    labels: dict[Node, str] = {}
    arcs: list[tuple[Node, Node]] = []
    for one in _plans(plan):
        own, first = _graph(one), 1 + max((stage for stage, _ in labels), default=-1)
        arcs += [((first - 1, 0), (first, 0))] if first else []
        arcs += [((a[0] + first, a[1]), (b[0] + first, b[1])) for a, b in own.arcs]
        labels |= {(stage + first, node): word for (stage, node), word in own.labels.items()}
    return Graph(labels, tuple(arcs))


def _plans(plan: FunctionPlan | Sequence[FunctionPlan]) -> Sequence[FunctionPlan]:
    return [plan] if isinstance(plan, FunctionPlan) else plan


def _graph(plan: FunctionPlan) -> Graph:
    labels = {}
    for index, stage in enumerate(plan.stages):
        if stage.kind in ("compute", "central"):
            word = plan.function.name
        else:
            pcc = plan.levels[stage.level]
            word = str(pcc.partition if stage.kind == "partition" else pcc.combine).split("(")[0]
        labels.update({(index, node): word for node in range(stage.n_nodes)})
    arcs = []
    depth = len(plan.levels)
    for level, entry in enumerate(plan.levels):
        for child in range(plan.width(level + 1)):
            parent = child // entry.n
            arcs.append(((level, parent), (level + 1, child)))
            arcs.append(((2 * depth - level - 1, child), (2 * depth - level, parent)))
    return Graph(labels, tuple(sorted(arcs)))


def to_dot(plan: FunctionPlan | Sequence[FunctionPlan]) -> str:
    """The graph as Graphviz text."""
    graph = graph_of(plan)
    lines = [f'digraph "{_name(plan)}" {{', "  rankdir=LR; node [shape=box];"]
    lines += [f'  n{stage}_{node} [label="{word}"];' for (stage, node), word in graph.labels.items()]
    lines += [f"  n{a[0]}_{a[1]} -> n{b[0]}_{b[1]};" for a, b in graph.arcs]
    return "\n".join([*lines, "}"])


def draw(plan: FunctionPlan | Sequence[FunctionPlan], path: str | Path) -> None:
    """Draw the graph to a file, stages from left to right."""
    degree = max(one.degree for one in _plans(plan))
    if degree > MOST_DRAWN:
        raise InputError(f"the plan has {degree} compute nodes", f"at most {MOST_DRAWN} in a picture", "to_dot(plan)")
    graph, stages = graph_of(plan), [stage for one in _plans(plan) for stage in one.stages]
    place = {(stage, node): (float(stage), (node + 0.5) / stages[stage].n_nodes) for stage, node in graph.labels}
    n_stages = len(stages)
    with drawing() as plt:
        size = (2.0 * n_stages + 1.0, max(0.55 * degree, 1.4) + 0.6)
        figure, axes = plt.subplots(figsize=size, layout="constrained")
        for begin, end in graph.arcs:
            arrow = {"arrowstyle": "->", "color": GREY, "shrinkA": 26, "shrinkB": 26}
            axes.annotate("", place[end], place[begin], arrowprops=arrow)
        for key, word in graph.labels.items():
            box = {"boxstyle": "round", "facecolor": "white", "edgecolor": COLORS[0]}
            axes.text(*place[key], word, ha="center", va="center", fontsize=10.5, bbox=box)
        axes.set(xlim=(-0.5, n_stages - 0.5), ylim=(0, 1))
        axes.axis("off")
        head(figure, f"{_name(plan)}: {joined_names(one.function.name for one in _plans(plan))}")
        save(plt, figure, path)


def _name(plan: FunctionPlan | Sequence[FunctionPlan]) -> str:
    return joined_names(one.strategy for one in _plans(plan))
