"""The controller's parameters, with the papers' defaults where the papers give one.

Flat, so that a `[control]` table of a job file maps to it name by name; checked when made, before anything starts.
`options/tables.py` declares them, docs/options.md has the table with their origin.
"""

from braidstream.options import Disk, Settings

__all__ = ["Disk", "Settings"]
