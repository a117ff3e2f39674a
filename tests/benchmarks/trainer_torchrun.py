"""The same faults under torchrun, restarting from a checkpoint: what ours is measured against.

Its fast setting: a checkpoint after every step, in memory; agent and store on loopback, static
rendezvous; a look at the workers every 50 ms. A restart is of all workers, as torchrun does it.
"""

from __future__ import annotations

from contextlib import closing
from socket import create_server

from tests.benchmarks.trainer_downtime import REPLICAS, ROUNDS, Kills, kill_in_turn
from tests.benchmarks.trainer_processes import Processes


def free_port() -> int:
    """Free a moment ago: torchrun takes no socket that is already bound."""
    with closing(create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


def start(job: Processes, replicas: int, *options: str, restarts: int = 0) -> None:
    """`trainer_ddp` as a job of torchrun."""
    job.start(
        "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", str(replicas),
        "--node-rank", "0", "--rdzv-backend", "static",
        "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--max-restarts", str(restarts),
        "--monitor-interval", "0.05", "-m", "tests.benchmarks.trainer_ddp",
        "--commits", str(job.log), *options,
        # With the shared store new workers read the addresses of dead ones, and wait for ever.
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
    )  # fmt: skip


def measure(rounds: int = ROUNDS, replicas: int = REPLICAS) -> Kills:
    with Processes("torchrun") as job:
        checkpoint = job.folder / "state.pt"
        start(job, replicas, "--checkpoint", str(checkpoint), restarts=4 * rounds)
        return kill_in_turn(job, rounds, replicas)


if __name__ == "__main__":
    print(measure())
