"""From queries to what runs for them: stores, branches and joins, and what a manifest remembers of them. No Spark."""
