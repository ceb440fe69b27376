"""GSDM's mechanisms, broken one by one (`lab.papers.mutations`)."""

from __future__ import annotations

__all__: list[str] = []
