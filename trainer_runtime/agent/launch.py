"""What each process of an agent is started with: its environment and its task."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer_runtime.agent.logs import Console, Lines, LogFile
from trainer_runtime.agent.options import AgentOptions
from trainer_runtime.agent.parking import VARIABLE
from trainer_runtime.agent.ports import HeldPort
from trainer_runtime.agent.processes import Nursery, Process, Replica


def common_environment(options: AgentOptions, authority: str) -> dict[str, str]:
    """What is the same for all processes; set before anything is imported."""
    given = {
        "CONCERTINA_AUTHORITY": authority, "CONCERTINA_JOB": options.job,
        "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    inherited = dict(os.environ)
    inherited.setdefault("CONCERTINA_MIN_REPLICAS", str(options.least))
    # numpy's library starts its threads at import, before the forks; torch has its own.
    inherited.setdefault("OPENBLAS_NUM_THREADS", "1")
    # As torchrun does it: else the ranks of a node fight for its cores.
    if options.replicas * options.ranks > 1:
        inherited.setdefault("OMP_NUM_THREADS", "1")
    return {**inherited, **given}


class Launcher:
    """Makes replicas, standbys and the authority's process out of forks of the nursery."""

    def __init__(self, options: AgentOptions, nursery: Nursery, console: Console) -> None:
        self.options, self.nursery, self.console = options, nursery, console
        self.folder = Path(tempfile.mkdtemp(prefix="concertina-run-"))
        self._incarnation = secrets.token_hex(3)
        self._starts = 0

    def replica(self, on_end: Callable[[Process], None]) -> Replica:
        """All processes of a replica, parked. Its name is unique for this start."""
        self._starts += 1
        replica = Replica(f"{self.options.agent}.{self._incarnation}-{self._starts}")
        replica.processes = [
            self._process(replica.name, rank, on_end) for rank in range(self.options.ranks)
        ]
        replica.prefix(f"s{self._starts}")
        return replica

    def begin(self, replica: Replica, slot: int, restarts: int) -> None:
        """Give its processes their tasks, as the replica at `slot` of this node."""
        options = self.options
        replica.port = HeldPort("0.0.0.0")
        for rank, process in enumerate(replica.processes):
            environment = self._environment(replica, slot, rank, restarts)
            argv = list(options.script)
            process.give(
                {
                    "argv": argv, "module": options.module, "exec": options.program,
                    "environment": environment,
                }
            )  # fmt: skip

    def park(self, replica: Replica, slot: int) -> None:
        """A warm standby: its script runs up to its join and waits there for `replica.wake()`."""
        replica.warm = True
        replica.park = self.folder / f"{replica.name}.park"
        os.mkfifo(replica.park, 0o600)
        # Opened for both, it never blocks us; a reader meets the end only when we are gone.
        replica.park_fd = os.open(replica.park, os.O_RDWR | os.O_CLOEXEC)
        self.begin(replica, slot, 0)

    def authority(self, host: str, port: int, on_end: Callable[[Process], None]) -> Process:
        process = self._process("authority", 0, on_end)
        for lines in process.lines:
            lines.prefix = "[authority] "
        argv = ["trainer_runtime.authority", "--host", host, "--port", str(port),
                "--min-replicas", str(self.options.least)]  # fmt: skip
        process.give({"argv": argv, "module": True, "exec": False, "environment": {}})
        return process

    def error_file(self, replica: str, rank: int) -> Path:
        return self.folder / f"{replica}.{rank}.error.json"

    def epoch_file(self, replica: str) -> Path:
        """Where a replica writes the last epoch that it took up: told with its death."""
        return self.folder / f"{replica}.epoch"

    def _environment(self, replica: Replica, slot: int, rank: int, restarts: int) -> dict[str, str]:
        options, size = self.options, str(self.options.ranks)
        assert replica.port is not None
        out: dict[str, Any] = {
            # The inner group of the replica. LOCAL_RANK counts over the node: it chooses a device.
            "RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size,
            "LOCAL_RANK": slot * options.ranks + rank, "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1,
            "ROLE_NAME": "default", "ROLE_RANK": rank, "ROLE_WORLD_SIZE": size,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": replica.port.port,
            "TORCHELASTIC_RUN_ID": options.job, "TORCHELASTIC_RESTART_COUNT": restarts,
            "TORCHELASTIC_MAX_RESTARTS": options.max_restarts,
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "TORCHELASTIC_ERROR_FILE": self.error_file(replica.name, rank),
            "CONCERTINA_REPLICA": replica.name,
            "CONCERTINA_EPOCH_FILE": self.epoch_file(replica.name),
        }  # fmt: skip
        if replica.park is not None:
            out[VARIABLE] = replica.park
        return {name: str(value) for name, value in out.items()}

    def _process(self, name: str, rank: int, on_end: Callable[[Process], None]) -> Process:
        folder = self.options.log_dir
        streams = []
        for descriptor, stream in ((1, "stdout"), (2, "stderr")):
            file = LogFile(folder / name / str(rank) / f"{stream}.log") if folder else None
            streams.append(Lines(self.console, descriptor, "", file))
        return Process(self.nursery, streams[0], streams[1], on_end)
