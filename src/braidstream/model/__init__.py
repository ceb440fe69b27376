"""Values that everybody shares: addresses and groups, grids, stores, instructions, reports, and the fault points.

Invariant: no I/O, no Spark, nothing of the planes that use them.
"""
