"""What runs in a worker, for one slot in one epoch: receive, join, store, clean up, report. No Spark in it."""
