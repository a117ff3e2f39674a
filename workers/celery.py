"""The Celery application: how tasks are sent, acknowledged, sent again, and scheduled.

Run the worker with `celery -A workers.celery worker -P prefork -c 2`, beat with
`celery -A workers.celery beat -S redbeat.RedBeatScheduler`.

A task may run twice: it is acknowledged when it has ended (acks_late), given again when its worker
dies (reject_on_worker_lost) and when it outlives the visibility time-out. So every task is short
and idempotent, and what it changes is guarded by the database (see workers/carry_out.py).
Neither web nor worker ever imports torch (docs/adr/0002).
"""

from __future__ import annotations

import logging
import os

from celery import Celery
from celery.signals import beat_init, setup_logging, worker_process_init, worker_ready
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.development")

#: a task that is still running after this is given to another worker as well; far above the
#: longest task (HARD_LIMIT_S), so that only tasks of dead workers come back
VISIBILITY_TIMEOUT_S = 60
SOFT_LIMIT_S = 20
HARD_LIMIT_S = 30
TICK_S = 5.0
SECRETS_S = 30.0
PRUNE_S = 300.0
INFLOW_S = 600.0

app = Celery("concertina")
app.conf.update(
    broker_url=settings.REDIS_URL,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": VISIBILITY_TIMEOUT_S,
        # the defaults sweep for lost tasks only every 100 s
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        "socket_timeout": 20,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
    },
    task_default_queue="concertina",
    task_acks_late=True,
    task_acks_on_failure_or_timeout=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_send_task_events=False,
    worker_hijack_root_logger=False,
    worker_max_tasks_per_child=10_000,
    task_ignore_result=True,
    task_store_errors_even_if_ignored=False,
    task_serializer="json",
    accept_content=["json"],
    task_soft_time_limit=SOFT_LIMIT_S,
    task_time_limit=HARD_LIMIT_S,
    timezone="UTC",
    enable_utc=True,
    imports=("workers.tasks.loop", "workers.tasks.upkeep"),
    beat_max_loop_interval=1,
    beat_schedule={
        "tick": {"task": "workers.tick", "schedule": TICK_S, "options": {"expires": TICK_S}},
        "secrets": {
            "task": "workers.check_secrets",
            "schedule": SECRETS_S,
            "options": {"expires": SECRETS_S},
        },
        "inflow": {
            "task": "workers.record_inflow",
            "schedule": INFLOW_S,
            "options": {"expires": INFLOW_S},
        },
        "prune": {"task": "workers.prune", "schedule": PRUNE_S, "options": {"expires": PRUNE_S}},
    },
    # redbeat: one beat at a time sends, whoever holds the lock (unprefixed names)
    redbeat_redis_url=settings.REDIS_URL,
    redbeat_redis_options={"socket_timeout": 5},
    redbeat_key_prefix="concertina:beat:",
    redbeat_lock_timeout=5,
)


@setup_logging.connect
def keep_django_logging(**_: object) -> None:
    """Django's LOGGING is already in force; a handler here keeps Celery from replacing it.

    Every task's "received" and "succeeded" would be most of the log; failures are still told.
    """
    if settings.LOGGING["root"]["level"] != "DEBUG":
        logging.getLogger("celery.worker.strategy").setLevel(logging.WARNING)
        logging.getLogger("celery.app.trace").setLevel(logging.WARNING)
        logging.getLogger("celery.beat").setLevel(logging.WARNING)


@worker_process_init.connect
def forget_inherited_connections(**_: object) -> None:
    """A forked child must not share its parent's sockets. Celery sees to the database's."""
    from controlplane import wiring
    from workers import mailbox

    mailbox.forget()
    wiring.forget()


@worker_ready.connect
def show_worker(**_: object) -> None:
    from workers import health

    health.keep("worker")


@beat_init.connect
def show_beat(**_: object) -> None:
    from workers import health

    health.keep("beat")
