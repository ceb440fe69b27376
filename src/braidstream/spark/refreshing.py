"""Looks for newer snapshots of tables while a flow runs: a thread that asks for a refresh when one is due.

A refresh is a change between two epochs, like a submitted query: the streaming query is stopped and started anew with
the new snapshot, if there is one. One that cannot be used is told, and the flow goes on with the snapshot it has.

Cost: a question a table and interval; a restart of the streaming query where a table has changed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from braidstream.errors import InputError
from braidstream.spark.joined_tables import Table

__all__ = ["Refresher"]


class Refresher:
    """Asks for refreshes until it is stopped, or the flow is over."""

    def __init__(
        self, tables: Mapping[str, Table], refresh: Callable[..., None], is_active: Callable[[], bool]
    ) -> None:
        self._due = {n: time.monotonic() + t.refresh_us / 1e6 for n, t in tables.items() if t.refresh_us is not None}
        self._tables, self._refresh, self._is_active = tables, refresh, is_active
        self._stopped = threading.Event()
        if self._due:
            threading.Thread(target=self._run, name="braidstream-refresh", daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(max(min(self._due.values()) - time.monotonic(), 0.01)):
            due = [name for name, at in self._due.items() if at <= time.monotonic()]
            if due and not self._is_done(due):
                return
            for name in due:
                self._due[name] = time.monotonic() + (self._tables[name].refresh_us or 0) / 1e6

    def _is_done(self, due: list[str]) -> bool:
        """Refresh; whether the flow goes on."""
        try:
            self._refresh(*due)
        except InputError as error:
            if self._stopped.is_set() or not self._is_active():
                return False
            logging.getLogger("braidstream").warning("tables are not refreshed: %s", error)
        except Exception:  # whoever waits for the flow is told
            return False
        return True
