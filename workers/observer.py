"""One cluster's watcher: leads (or waits to), follows its sources, publishes what they show.

A thread a cluster, so that one that can't be reached holds up no other. The lease lives in our
database with a fencing epoch: every snapshot and every command carries it, and whoever lost the
lease can't write (kueue 10495, 15537).
"""

from __future__ import annotations

import dataclasses
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import redis
from django.db import DatabaseError, close_old_connections

from apps.clusters import actions
from apps.clusters.models import Cluster as ClusterRow
from controlplane import wiring
from controlplane.cluster.backoff import Backoff
from controlplane.cluster.cache import ClusterCache
from controlplane.cluster.interface import Cluster, ClusterError, Resource
from controlplane.cluster.resources import WATCHED
from controlplane.cluster.translate import Translation, translate
from controlplane.cluster.watch import Source, SourceGroup
from controlplane.engine.serialize import snapshot_to_json
from workers import mailbox
from workers.wakeups import Wakeup, Wakeups

log = logging.getLogger(__name__)

LEASE_S = 15.0
RENEW_S = 4.0
#: published at least this often, so that the age of a snapshot tells whether its watcher lives
REFRESH_S = 2.0
#: the record's "last observed" moves at most this often
OBSERVED_S = 1.0
#: the same trouble is written to the record again only after this long
SAY_AGAIN_S = 10.0


@dataclasses.dataclass(slots=True)
class ObserverState:
    """For the health file."""

    leading: bool = False
    epoch: int = 0
    complete: bool = False
    error: str = ""


class Observer:
    """See the module. `start`, then `stop` and `join`."""

    def __init__(
        self,
        row: ClusterRow,
        *,
        connect: Callable[[ClusterRow], Cluster] | None = None,
        queue: Callable[[str, int], Any] | None = None,
        clock: wiring.Clock | None = None,
        window_s: float = 0.03,
    ) -> None:
        self.row = row
        self.cluster_id = str(row.pk)
        self.state = ObserverState()
        self.holder = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        self._connect = connect or (lambda row: wiring.connect(wiring.address_of(row)))
        self._queue = queue or queue_reconcile
        self._clock = clock or wiring.clock()
        self._wakeups = Wakeups(window_s, clock=self._clock)
        self._stopping = threading.Event()
        self._trouble: ClusterError | None = None
        self._said: tuple[str, float] = ("", 0.0)
        self._observed_at = 0.0
        self._revision = 0
        self._thread = threading.Thread(target=self._run, name=f"observe-{row.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end; returns at once."""
        self._stopping.set()
        self._wakeups.nudge()

    @property
    def alive(self) -> bool:
        """Whether its thread still observes; one that died is replaced."""
        return self._thread.is_alive()

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def wake(self) -> None:
        """Look again when the next plan is due (it was moved)."""
        self._wakeups.nudge()

    # -- leading -------------------------------------------------------------------------------

    def _run(self) -> None:
        backoff = Backoff(first=0.5, most=5.0)
        while not self._stopping.is_set():
            try:
                epoch = actions.acquire_lease(
                    self.row.pk, holder=self.holder, duration=timedelta(seconds=LEASE_S)
                )
                if epoch is not None:
                    self._lead(epoch)
                    backoff.reset()
                    continue
            except ClusterError as error:  # the kubeconfig can't be used
                self._trouble = error
                try:
                    self._say_trouble()
                except Exception:
                    log.exception("what is wrong with %s could not be recorded", self.row.name)
            except Exception:  # the database or Redis is away: nothing can be led, try again
                log.exception("observing %s failed", self.row.name)
            finally:
                self.state.leading = False
                close_old_connections()
            self._stopping.wait(backoff.next())

    def _lead(self, epoch: int) -> None:
        """Follow the cluster until stopped or the lease is lost."""
        self.state = ObserverState(leading=True, epoch=epoch)
        self._revision = wiring.revision(wiring.address_of(self.row))
        cluster = self._connect(self.row)
        cache = ClusterCache(WATCHED, self._wakeups.event, on_lost=self._lost, clock=self._clock)
        sources = SourceGroup([Source(cluster, resource, cache) for resource in WATCHED])
        sources.start()
        log.info("leading %s with epoch %d", self.row.name, epoch)
        try:
            self._loop(epoch, cache)
        finally:
            sources.stop(1.0)
            cluster.close()
            # a successor need not wait for the lease to run out
            actions.release_lease(self.row.pk, holder=self.holder, epoch=epoch)

    def _loop(self, epoch: int, cache: ClusterCache) -> None:
        renew_at = self._clock() + RENEW_S
        publish_at = self._clock() + REFRESH_S
        pending: Wakeup | None = None  # events that could not be published yet
        while not self._stopping.is_set():
            due = self._due()
            wait = min(renew_at, publish_at, due or publish_at) - self._clock()
            wakeup = self._wakeups.wait(max(0.0, wait)) or pending
            now = self._clock()
            if now >= renew_at:
                if self._is_moved() or not self._renew(epoch):
                    return
                renew_at = now + RENEW_S
            timer = due is not None and now >= due
            if wakeup is not None or timer or now >= publish_at:
                publish_at = now + REFRESH_S
                try:
                    if not self._publish(epoch, cache, wakeup, timer=timer):
                        return
                    pending = None
                except redis.RedisError as error:
                    # the watches go on; what they saw is published when Redis is back
                    log.warning("nothing can be published for %s: %s", self.row.name, error)
                    pending = wakeup
            self._say_trouble()

    def _is_moved(self) -> bool:
        """Whether the kubeconfig changed: then everything is connected and listed anew."""
        moved = wiring.revision(wiring.address_of(self.row)) != self._revision
        if moved:
            log.info("the kubeconfig of %s changed: connecting again", self.row.name)
        return moved

    def _renew(self, epoch: int) -> bool:
        try:
            kept = actions.renew_lease(
                self.row.pk,
                holder=self.holder,
                epoch=epoch,
                duration=timedelta(seconds=LEASE_S),
            )
        except DatabaseError:
            log.exception("the lease of %s can't be renewed", self.row.name)
            return False
        if not kept:
            log.warning("the lease of %s is lost (epoch %d)", self.row.name, epoch)
        return kept

    def _due(self) -> float | None:
        """When the last plan wants to be made again; None when it doesn't say."""
        try:
            return mailbox.next_wake(self.cluster_id)
        except redis.RedisError:
            return None

    # -- publishing ----------------------------------------------------------------------------

    def _publish(
        self, epoch: int, cache: ClusterCache, wakeup: Wakeup | None, *, timer: bool
    ) -> bool:
        """Put the newest state where tasks find it; queue a reconcile if something called for it.

        False when another watcher has taken over.
        """
        view = cache.view()
        translation = translate(view, self.row.name)
        self.state.complete = translation.snapshot.complete
        observation = observation_of(self.cluster_id, epoch, view.version, translation, wakeup)
        if not mailbox.publish(observation):
            log.warning("a later watcher observes %s: epoch %d ends", self.row.name, epoch)
            return False
        if timer:
            mailbox.clear_next_wake(self.cluster_id)
        if translation.snapshot.complete:
            self._observed()
            if (wakeup is not None or timer) and mailbox.want_reconcile(self.cluster_id):
                self._queue(self.cluster_id, epoch)
        return True

    def _observed(self) -> None:
        self._trouble = None
        self.state.error = ""
        self._said = ("", 0.0)
        now = self._clock()
        if now - self._observed_at >= OBSERVED_S:
            self._observed_at = now
            actions.record_observed(self.row.pk, at=datetime.fromtimestamp(now, UTC))

    # -- trouble -------------------------------------------------------------------------------

    def _lost(self, resource: Resource, error: ClusterError) -> None:
        """From a source's thread: keep it for the loop, which writes it down."""
        self._trouble = error
        self._wakeups.nudge()

    def _say_trouble(self) -> None:
        """Write the cluster's trouble to the record: when it changes, and now and then."""
        error = self._trouble
        if error is None:
            return
        text, now = str(error), self._clock()
        self.state.error = text
        if text == self._said[0] and now - self._said[1] < SAY_AGAIN_S:
            return
        self._said = (text, now)
        log.warning("%s", text)
        actions.record_unreachable(self.row.pk, error=text)


def observation_of(
    cluster_id: str, epoch: int, version: int, translation: Translation, wakeup: Wakeup | None
) -> mailbox.Observation:
    """What is published of a translation."""
    return mailbox.Observation(
        cluster_id=cluster_id,
        epoch=epoch,
        version=version,
        taken_at=translation.snapshot.taken_at,
        complete=translation.snapshot.complete,
        missing=dict(translation.missing),
        channels=sorted(str(channel) for channel in wakeup.channels) if wakeup else [],
        first_event_at=wakeup.first_event_at if wakeup else None,
        problems=[dataclasses.asdict(problem) for problem in translation.problems],
        priority_classes=[dataclasses.asdict(found) for found in translation.priority_classes],
        snapshot=snapshot_to_json(translation.snapshot),
    )


def queue_reconcile(cluster_id: str, epoch: int) -> None:
    from workers.tasks.loop import reconcile

    reconcile.delay(cluster_id, epoch)
