"""For scripts of the published elastic style, which save, return and are started again.

    from trainer_runtime.compat import elastic_event_detected

    for batch in loader:
        ...
        if elastic_event_detected():
            save_checkpoint()
            return

The published function is `hyperpod_elastic_agent.elastic_event_handler.elastic_event_detected`: its
agent sends SIGUSR1, and the script asks after each batch (Amazon SageMaker AI developer guide,
"Using elastic training in Amazon SageMaker HyperPod"). Here only the import changes; SIGTERM counts
too, since that is how `concertina-run` drains. Such a script stops at every resize. With
ElasticTrainer there is nothing to ask for: it takes SIGTERM over, and this says False.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from types import FrameType

from trainer_runtime.agentlink import AgentLink
from trainer_runtime.handshake import Secret
from trainer_runtime.protocol import parse_addresses

SIGNALS = (signal.SIGUSR1, signal.SIGTERM)


class ElasticEvents:
    """Whether this process was asked to stop, from the first signal on; `listen` installs itself.

    Asking connects to the job's authority, if there is one: that is how the agent knows that the
    process can be drained (else it refuses the control plane's intents as `not_elastic`).
    """

    def __init__(self) -> None:
        self.requested = False
        self._link: AgentLink | None = None

    def listen(self) -> None:
        """Take over the signals. For the main thread only."""
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def detected(self) -> bool:
        """True on every rank of the process group, if there is one, as soon as one was asked: all
        leave after the same step. So every rank must ask equally often."""
        if self._link is None and os.environ.get("CONCERTINA_AUTHORITY"):
            self._link = _connect()
        torch = sys.modules.get("torch")
        if torch is None or not torch.distributed.is_available():
            return self.requested
        group = torch.distributed
        if not group.is_initialized() or group.get_world_size() == 1:
            return self.requested
        device = "cuda" if group.get_backend() == "nccl" else "cpu"
        flag = torch.tensor([float(self.requested)], device=device)
        group.all_reduce(flag, op=group.ReduceOp.MAX)
        return bool(flag.item())

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.requested = True


def _connect() -> AgentLink:
    """Raises ValueError where the job wants several replicas: each would train alone."""
    env = os.environ
    least = int(env.get("CONCERTINA_MIN_REPLICAS") or 1)
    if least > 1:
        raise ValueError(
            f"CONCERTINA_MIN_REPLICAS: is {least}, but a script that only saves and returns must "
            "be the job's only replica; start it with `concertina-run --replicas 1 "
            "--nproc-per-node N`, or use ElasticTrainer"
        )
    rank = env.get("RANK", "0")
    link = AgentLink(
        parse_addresses(env["CONCERTINA_AUTHORITY"]), job=env.get("CONCERTINA_JOB") or "default",
        agent=f"{env.get('CONCERTINA_REPLICA', 'script')}/{rank}",
        on_expired=lambda name, cause: None,  # it started nobody
        secret=Secret.from_env(),
        log=lambda text: print(text, file=sys.stderr, flush=True),
    )  # fmt: skip
    link.start()
    return link


EVENTS = ElasticEvents()
if (
    threading.current_thread() is threading.main_thread()
    and multiprocessing.parent_process() is None  # not in a loader's worker, which imports it again
):
    EVENTS.listen()


def elastic_event_detected(sig: int = signal.SIGUSR1) -> bool:
    """Whether to save and return now, on every rank alike. `sig` as published: other signals than
    SIGUSR1 are never detected. Raises ValueError if the job wants several replicas."""
    return sig == signal.SIGUSR1 and EVENTS.detected()
