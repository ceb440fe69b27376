"""Where it runs: the engine on Spark. It acts on instructions and decides nothing.

No other plane imports pyspark.
"""
