"""The data-flow graph of a plan: its nodes and arcs, as Graphviz text or as a picture (GSDM's figures 6, 9 and 10).

Invariant: the graph has a node for every node of every stage, and an arc wherever windows flow. Cost: O(nodes).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from braidstream.errors import InputError
from braidstream.functions.templates import FunctionPlan
from braidstream.pictures import COLORS, GREY, drawing, head, save

__all__ = ["Graph", "draw", "graph_of", "to_dot"]

MOST_DRAWN = 64


@dataclass(frozen=True)
class Graph:
    """Nodes (stage, number) with their labels, and the arcs between them."""

    labels: dict[tuple[int, int], str]
    arcs: tuple[tuple[tuple[int, int], tuple[int, int]], ...]


def graph_of(plan: FunctionPlan) -> Graph:
    """The graph of a plan, from the node that takes the stream to the node that gives the results."""
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


def to_dot(plan: FunctionPlan) -> str:
    """The graph as Graphviz text."""
    graph = graph_of(plan)
    lines = [f'digraph "{plan.strategy}" {{', "  rankdir=LR; node [shape=box];"]
    lines += [f'  n{stage}_{node} [label="{word}"];' for (stage, node), word in graph.labels.items()]
    lines += [f"  n{a[0]}_{a[1]} -> n{b[0]}_{b[1]};" for a, b in graph.arcs]
    return "\n".join([*lines, "}"])


def draw(plan: FunctionPlan, path: str | Path) -> None:
    """Draw the graph to a file, stages from left to right."""
    if plan.degree > MOST_DRAWN:
        raise InputError(
            f"the plan has {plan.degree} compute nodes", f"at most {MOST_DRAWN} in a picture", "to_dot(plan)"
        )
    graph = graph_of(plan)
    place = {(stage, node): (float(stage), (node + 0.5) / plan.stages[stage].n_nodes) for stage, node in graph.labels}
    n_stages = len(plan.stages)
    with drawing() as plt:
        size = (2.0 * n_stages + 1.0, max(0.55 * plan.degree, 1.4) + 0.6)
        figure, axes = plt.subplots(figsize=size, layout="constrained")
        for begin, end in graph.arcs:
            arrow = {"arrowstyle": "->", "color": GREY, "shrinkA": 26, "shrinkB": 26}
            axes.annotate("", place[end], place[begin], arrowprops=arrow)
        for key, word in graph.labels.items():
            box = {"boxstyle": "round", "facecolor": "white", "edgecolor": COLORS[0]}
            axes.text(*place[key], word, ha="center", va="center", fontsize=10.5, bbox=box)
        axes.set(xlim=(-0.5, n_stages - 0.5), ylim=(0, 1))
        axes.axis("off")
        head(figure, f"{plan.strategy}: {plan.function.name}")
        save(plt, figure, path)
