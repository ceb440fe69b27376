"""Braidstream: adaptive, skew-proof, exactly-once stream joins on Spark."""

__version__ = "0.1.0"
