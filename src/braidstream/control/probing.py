"""Probing sequences of m-way joins, chosen from measured selectivities (DHTJoin 3.3.1).

New tuples of an input probe the other inputs one after the other; each probe multiplies the partial composites by the
matches it finds. So the inputs with the fewest matches a probe come first. What a probe gives is measured in every
epoch and remembered in the manifest as a moving average, and the next epoch's sequences follow it.

Each slot has a sequence of its own, as each of the paper's nodes has: keys are other ones there, and so are their
matches. Remembered of a slot is only what makes its sequences differ from those by the fan-outs of all slots together.

Pure: measurements in, sequences out. Cost: O(m^2) a join and slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["learned", "learned_apart", "probing_order"]

_WEIGHT = 0.5
"""How much the last epoch counts against all before it."""
_ENOUGH = 16
"""Fewer probes than this say nothing."""


def probing_order(n_inputs: int, fanouts: Mapping[int, float]) -> list[list[int]]:
    """For each input the order in which its new tuples probe the others: fewest matches a probe first."""
    return [
        sorted((j for j in range(n_inputs) if j != source), key=lambda j: (fanouts.get(j, 1.0), j))
        for source in range(n_inputs)
    ]


def learned(
    known: Mapping[str, Mapping[int, float]], measured: Sequence[Mapping[str, Mapping[int, tuple[int, int]]]]
) -> dict[str, dict[int, float]]:
    """The matches a probe of each input gives, by join, after an epoch's measurements of (probes, matches)."""
    totals: dict[str, dict[int, list[int]]] = {}
    for slot in measured:
        for join, inputs in slot.items():
            for target, (probes, matches) in inputs.items():
                total = totals.setdefault(join, {}).setdefault(target, [0, 0])
                total[0] += probes
                total[1] += matches
    after = {join: dict(fanouts) for join, fanouts in known.items()}
    for join, summed in totals.items():
        for target, (probes, matches) in summed.items():
            if probes >= _ENOUGH:
                before = after.setdefault(join, {}).get(target, matches / probes)
                after[join][target] = _WEIGHT * matches / probes + (1 - _WEIGHT) * before
    return after


def learned_apart(
    known: Mapping[str, Mapping[int, Mapping[int, float]]],
    common: Mapping[str, Mapping[int, float]],
    measured: Mapping[int, Mapping[str, Mapping[int, tuple[int, int]]]],
    n_slots: int,
) -> dict[str, dict[int, dict[int, float]]]:
    """By join and slot what a probe of each input gives there, where the slot's sequences are other than the common.

    `measured` are an epoch's by slot; what is known of slots that measured nothing stays, as long as they are there.
    """
    after = {
        join: {slot: dict(own) for slot, own in slots.items() if slot < n_slots}
        for join, slots in known.items()
        if join in common
    }
    for slot, joins in measured.items():
        for join, probes in joins.items():
            before = known.get(join, {}).get(slot, {})
            own = {**common.get(join, {}), **learned({join: before}, [{join: probes}])[join]}
            n = max((*own, *common.get(join, {})), default=0) + 1
            if n > 2 and probing_order(n, own) != probing_order(n, common.get(join, {})):
                after.setdefault(join, {})[slot] = own
            else:
                after.get(join, {}).pop(slot, None)
    return {join: slots for join, slots in after.items() if slots}
