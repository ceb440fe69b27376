"""In the place of Spark's query where there is nothing to run: a start that only had to end what was begun."""

from __future__ import annotations

from typing import Any

__all__ = ["Ended"]


class Ended:
    """A streaming query that is over."""

    isActive = False  # noqa: N815  Spark's name

    @property
    def status(self) -> dict[str, Any]:
        """Nothing is being done."""
        return {"isTriggerActive": False}

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802  Spark's name
        """Nothing was done."""
        return []

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802  Spark's name
        """It has ended."""
        del timeout
        return True

    def exception(self) -> None:
        """Nothing went wrong."""

    def stop(self) -> None:
        """It stands still."""
