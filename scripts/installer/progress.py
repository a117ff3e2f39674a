"""What the person at the terminal sees while steps run."""

from __future__ import annotations

import sys
import threading
import time

HEARTBEAT_SECONDS = 15.0


class Progress:
    """A line when a step starts and ends; on a terminal, a live line with the running ones.

    Away from a terminal (a log, CI), a line every 15 s says what is still running.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.live = sys.stdout.isatty()
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._running: dict[str, float] = {}
        self._begun = time.monotonic()
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)
        self._ticker.start()

    def start(self, title: str) -> None:
        with self._lock:
            self._numbers[title] = len(self._numbers) + 1
            self._running[title] = time.monotonic()
            self._say(f"[{self._numbers[title]}/{self.total}] {title} ...")

    def finish(self, title: str, *, failed: bool = False) -> None:
        with self._lock:
            seconds = time.monotonic() - self._running.pop(title)
            word = "FAILED" if failed else "done"
            self._say(f"[{self._numbers[title]}/{self.total}] {title}: {word} ({seconds:.1f} s)")

    def close(self) -> float:
        """End the display; returns the seconds since it began."""
        self._ended.set()
        self._ticker.join()
        return time.monotonic() - self._begun

    def _say(self, line: str) -> None:
        clear = "\r\033[K" if self.live else ""
        print(clear + line, flush=True)

    def _tick(self) -> None:
        while not self._ended.wait(0.5 if self.live else HEARTBEAT_SECONDS):
            with self._lock:
                now = time.monotonic()
                state = ", ".join(f"{t} {now - since:.0f} s" for t, since in self._running.items())
                if not state:
                    continue
                if self.live:
                    print(f"\r\033[K      {state}"[:200], end="", flush=True)
                else:
                    print(f"      still running: {state}", flush=True)
        if self.live:
            print("\r\033[K", end="", flush=True)
