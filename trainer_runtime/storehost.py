"""The TCPStore that group set-up falls back on, hosted beside the authority."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class StoreHost:
    """Brought up in the background: importing torch takes a second or more."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.port: int | None = None
        self.error: Exception | None = None
        self._store: Any = None
        self._sweeping = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-sweep")

    def start(self) -> None:
        # A daemon: SIGTERM must not wait for an import.
        threading.Thread(target=self._open, name="store", daemon=True).start()

    def _open(self) -> None:
        try:
            from datetime import timedelta

            from torch.distributed import TCPStore

            self._store = TCPStore(
                self.host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=30)
            )
            self.port = self._store.port
        except Exception as error:
            self.error = error

    def ready(self) -> int | None:
        """The port, None while it comes up. Raises what kept it from coming up."""
        if self.error is not None:
            raise self.error
        return self.port

    def sweep(self, job_prefix: str, before: int | None) -> None:
        """Delete, in the background, the keys of a job's epochs below `before` (None: all). Keys
        begin with `job_prefix/EPOCH/`; nobody sets up an epoch that another has followed."""
        if self._store is not None:
            self._sweeping.submit(self._sweep, job_prefix + "/", before)

    def _sweep(self, start: str, before: int | None) -> None:
        for key in stale(self._store.list_keys(), start, before):
            self._store.delete_key(key)


def stale(keys: list[str], start: str, before: int | None) -> list[str]:
    """Those under `start` whose next part is an epoch below `before`."""
    found = []
    for key in keys:
        epoch = key[len(start) :].partition("/")[0] if key.startswith(start) else ""
        if epoch.isdigit() and (before is None or int(epoch) < before):
            found.append(key)
    return found
