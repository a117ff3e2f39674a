"""SIGTERM as a wish to leave, from the first line of a script on. Standard library only.

Before a replica has joined nothing is lost by ending at once; after that it finishes its step.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class Drain:
    """Installs itself for SIGTERM (and SIGINT) when made in the main thread."""

    def __init__(self) -> None:
        self.requested = False
        self._then: Callable[[], None] | None = None
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again, self.requested = self.requested, True
        if self._then is not None:
            if again and number == signal.SIGINT:
                raise KeyboardInterrupt
            self._then()
        else:
            # Not in the training yet (it may still import torch): nothing to hand over.
            os._exit(0)

    def into(self, then: Callable[[], None]) -> None:
        """From here on a signal calls `then` instead of ending the process."""
        self._then = then

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
