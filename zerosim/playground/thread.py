"""One thread that does what it is given, in turn, and that nobody waits for: who leaves does not wait for a long play.

An executor of the standard library is waited for when the program ends, whatever its thread is at.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any


class PlayThread:
    """A daemon, which begins with the first work."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="play", daemon=True)

    def does(self, work: Callable[[], Any]) -> Future[Any]:
        """The result of a piece of work, once it is there."""
        result: Future[Any] = Future()
        self._asked.put((result, work))
        if self._thread.ident is None:
            self._thread.start()
        return result

    def _work(self) -> None:
        while True:
            result, work = self._asked.get()
            if not result.set_running_or_notify_cancel():
                continue
            try:
                result.set_result(work())
            except BaseException as error:  # as an executor does: whoever asked is told
                result.set_exception(error)
