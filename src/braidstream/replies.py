"""Questions to servers that may never answer: asked beside, with a limit, for clients that know none of their own.

Who gives up leaves the question to its thread, which ends by itself and keeps no process alive. Cost: a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

__all__ = ["ANSWER_S", "answer_within"]

Answer = TypeVar("Answer")

ANSWER_S = 7.0
"""How long a start waits for a server that it has not heard of so far."""


def answer_within(seconds: float, ask: Callable[[], Answer]) -> Answer:
    """What `ask` gives, or raises; `concurrent.futures.TimeoutError` where that takes longer."""
    asked: Future[Answer] = Future()

    def answer() -> None:
        try:
            asked.set_result(ask())
        except BaseException as error:
            asked.set_exception(error)

    Thread(target=answer, daemon=True).start()
    return asked.result(seconds)
