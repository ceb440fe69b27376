"""A thousand crashes: random flows that are killed, starved, moved and changed, compared with DuckDB.

story           a flow and all that befalls it, as one value
drawing         a story from a seed; query_drawing its queries
asking          queries as CQL; reference: what they should give, by DuckDB
playing         a story in this process; spark_playing: on Spark, with processes that are killed
comparing       what was put out beside what should have been
shrinking       a story that ends wrong, made smaller
record          many stories: `braid torture`
soak            one flow for a long time, with faults every minute
"""
