"""What the driver makes of an epoch: from reports to figures, decisions and the next manifest. No Spark in it."""
