"""The long-running observer: `python -m workers.watcher [--health-file FILE]`.

Observes every enabled cluster, notices those that are added, changed or disabled, and writes a
health file from its main loop. Ends within 3 s of SIGTERM. Several may run: for each cluster one
leads, by a lease in the database, and another takes over when it ends or falls silent.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import django

if TYPE_CHECKING:  # models can only be imported after django.setup()
    from apps.clusters.models import Cluster
    from controlplane.cluster.interface import ClusterAddress
    from workers.observer import Observer

log = logging.getLogger(__name__)

LOOK_S = 2.0
STOP_S = 2.0


class Watcher:
    """Keeps one Observer for each enabled cluster."""

    def __init__(
        self, health_file: Path, make_observer: Callable[[Cluster], Observer] | None = None
    ) -> None:
        from workers.observer import Observer

        self._health_file = health_file
        self._make = make_observer or Observer
        self._observers: dict[str, Observer] = {}
        self._stopping = threading.Event()

    def run(self) -> None:
        """Until `stop`. Trouble with the database is logged and retried: the observers go on."""
        threading.Thread(target=self._listen, name="wakes", daemon=True).start()
        while not self._stopping.is_set():
            try:
                self.look()
                self._show()
            except Exception:
                log.exception("looking for clusters failed")
            self._stopping.wait(LOOK_S)
        self._end(list(self._observers.values()))
        self._health_file.unlink(missing_ok=True)

    def stop(self) -> None:
        self._stopping.set()

    def look(self) -> None:
        """Start and end observers so that they match the enabled clusters of the record."""
        from django.db import close_old_connections

        from apps.clusters.models import Cluster

        close_old_connections()
        wanted = {str(row.pk): row for row in Cluster.objects.filter(enabled=True)}
        ended = [
            self._observers.pop(key)
            for key, observer in list(self._observers.items())
            if key not in wanted
            or not observer.alive
            or _address(observer.row) != _address(wanted[key])
        ]
        self._end(ended)
        for key, row in wanted.items():
            if key not in self._observers:
                log.info("observing cluster %s", row.name)
                self._observers[key] = observer = self._make(row)
                observer.start()

    def _end(self, observers: list[Observer]) -> None:
        for observer in observers:
            observer.stop()
        deadline = time.monotonic() + STOP_S
        for observer in observers:
            if not observer.join(max(0.0, deadline - time.monotonic())):
                log.warning("the observer of %s did not end in time", observer.row.name)

    def _show(self) -> None:
        from workers import health

        clusters = {o.row.name: dataclasses.asdict(o.state) for o in self._observers.values()}
        health.write(self._health_file, {"clusters": clusters})

    def _listen(self) -> None:
        """Pass on that a cluster's next wake-up moved; without Redis it is noticed later."""
        from workers import mailbox

        while not self._stopping.is_set():
            try:
                for cluster_id in mailbox.wakes(self._stopping.is_set):
                    observer = self._observers.get(cluster_id)
                    if observer is not None:
                        observer.wake()
            except Exception as error:
                log.warning("not listening for wake-ups: %s", error)
                self._stopping.wait(1.0)


def _address(row: Cluster) -> ClusterAddress:
    from controlplane import wiring

    return wiring.address_of(row)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workers.watcher", description=__doc__)
    parser.add_argument("--health-file", type=Path, help="default: STATE_DIR/health/watcher")
    options = parser.parse_args(arguments)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.development")
    django.setup()
    from workers import health

    watcher = Watcher(options.health_file or health.path_of("watcher"))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: watcher.stop())
    watcher.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
