"""D-CAPE's figures 6 to 21 on its simulator (`lab.sim.dcape`), and its six-hour clean-up.

Figures 8 (ways to choose partitions), 13 (the relocation protocol), 18 and 19 (pseudo code of lazy-disk and
active-disk) are diagrams without results: they are in the code (`model.directory`, `lab.sim.relocation`,
`control.policies.disk`), not here.

The joins are real and so are the controller's decisions, so the numbers of results, of missing and of recovered ones
are exact for the streams drawn; machines, clock and prices are virtual (`lab.sim.dcape.machine` lists the assumptions).
`dcape_spark` has figures 9 to 12 on the engine, `dcape_moves_spark` figures 14 to 17, 20 and 21.
"""

from __future__ import annotations

from braidstream.lab.papers import dcape_disk, dcape_moves, dcape_moves_spark, dcape_spark

__all__ = ["dcape_disk", "dcape_moves", "dcape_moves_spark", "dcape_spark"]
