from django.db import models


class CommandKind(models.TextChoices):
    RESIZE = "resize", "change the number of replicas"
    ADMIT = "admit", "let a suspended job run"
    SUSPEND = "suspend", "stop a job; it keeps its place in the queue and its state on disk"


class CommandState(models.TextChoices):
    PENDING = "pending", "recorded, not begun"
    APPLYING = "applying", "a worker is writing it to the cluster"
    APPLIED = "applied", "written; waits until the cluster and the trainer show it"
    DONE = "done", "the cluster shows it and the trainer confirms it"
    FAILED = "failed", "the cluster refused it"
    TIMED_OUT = "timed_out", "written, but never confirmed in time"
    SUPERSEDED = "superseded", "a newer plan wants something else"
    REFUSED = "refused", "no longer valid on a newer snapshot, or its epoch is over"


LIVE_STATES = frozenset({CommandState.PENDING, CommandState.APPLYING, CommandState.APPLIED})

# From a state to those it may become. A command that left LIVE_STATES never moves again.
TRANSITIONS: dict[CommandState, frozenset[CommandState]] = {
    CommandState.PENDING: frozenset(
        {
            CommandState.APPLYING,
            CommandState.SUPERSEDED,
            CommandState.REFUSED,
            CommandState.FAILED,
            CommandState.TIMED_OUT,
        }
    ),
    CommandState.APPLYING: frozenset(
        {
            # APPLYING again: its worker was killed, another carries it out (writes are idempotent)
            CommandState.APPLYING,
            CommandState.APPLIED,
            CommandState.DONE,
            CommandState.SUPERSEDED,
            CommandState.REFUSED,
            CommandState.FAILED,
            CommandState.TIMED_OUT,
        }
    ),
    CommandState.APPLIED: frozenset(
        {
            CommandState.DONE,
            CommandState.SUPERSEDED,
            CommandState.FAILED,
            CommandState.TIMED_OUT,
        }
    ),
    CommandState.DONE: frozenset(),
    CommandState.FAILED: frozenset(),
    CommandState.TIMED_OUT: frozenset(),
    CommandState.SUPERSEDED: frozenset(),
    CommandState.REFUSED: frozenset(),
}
