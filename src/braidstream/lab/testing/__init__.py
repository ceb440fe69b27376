"""What tests of stream joins need: the engine's own tests use it, and yours can.

    oracle      the meaning of a query as a readable nested loop, for small inputs
    batch       the same join by DuckDB for large inputs, and the comparison of two tables as multisets
    script      a script of epochs that a Spark file stream reads one at a time
    strategies  random streams for Hypothesis
    harness     the engine without Spark, in one process; function_harness that of stream functions

`braidstream.model.faults` has the named points at which a process dies, for crash tests. Import the module you need;
none is imported here, so that no test tool is loaded where only one is used.
"""

__all__ = ["batch", "function_harness", "harness", "oracle", "script", "strategies"]
