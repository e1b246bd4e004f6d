"""A lock that is given to those who wait in the order they came.

`threading.Lock` may go to the thread that has just released it, again and again: with several threads driving one batch
in turns, a document would wait for its pages while the others go on.
"""

from __future__ import annotations

import threading
from collections import deque


class FairLock:
    """Use as a context manager. Not reentrant."""

    def __init__(self) -> None:
        self._state = threading.Lock()
        self._is_held = False
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._state:
            if not self._is_held:
                self._is_held = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()

    def __exit__(self, *_: object) -> None:
        with self._state:
            if self._waiting:
                # it stays held: the next in line has it now
                self._waiting.popleft().release()
            else:
                self._is_held = False
