"""The command line of `concertina-run`: torchrun's habits, and what elasticity adds."""

from __future__ import annotations

import argparse
import os
import re
import socket
import uuid
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.protocol import parse_address

AUTHORITY_PORT = 29400


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Times in seconds."""

    script: tuple[str, ...]  # script or module or program, and its arguments
    module: bool
    program: bool  # no Python script: executed as it is
    replicas: int  # at most, on this node; that many are started
    low: int  # at least, on this node
    least: int  # at least, of the job
    ranks: int
    standbys: int
    warm_script: bool
    preload: str
    job: str
    agent: str
    authority: str  # host:port for the ranks; empty: this agent's own, at a free port
    host_authority: tuple[str, int] | None
    max_restarts: int
    restart_window: float
    grace: float
    elastic_timeout: float
    dns_timeout: float
    log_dir: Path | None
    error_file: Path | None


def parse(argv: list[str] | None = None) -> AgentOptions:
    """Ends with a sentence and exit code 2 for what makes no sense."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        return _options(args)
    except ValueError as error:
        parser.error(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="concertina-run", description=__doc__, allow_abbrev=False)
    add, env = parser.add_argument, os.environ
    add("--nproc-per-node", "--nproc_per_node", type=_count, help="ranks on this node")
    add("--replicas", default="", help="N or MIN:MAX replicas of this node")
    add("--ranks-per-replica", type=_count, help="ranks of a replica's inner group (1)")
    add("--standbys", type=int, default=1, help="parked replicas that replace dead ones (1)")
    add("--warm-script", action="store_true", help="standbys run the script up to its join")
    add("--preload", default="torch", help="modules imported once, before forking (torch)")
    add("--authority", default=env.get("CONCERTINA_AUTHORITY", ""), help="host:port[,...]")
    add("--headless-service", default=env.get("CONCERTINA_SERVICE", ""), help="of the job's pods")
    add("--rdzv-endpoint", "--rdzv_endpoint", default="", help="authority; its host starts it")
    add("--rdzv-id", "--rdzv_id", default=env.get("CONCERTINA_JOB", ""), help="the job's name")
    add("--rdzv-backend", "--rdzv_backend", help="accepted, without effect")
    add("--nnodes", default="1", help="N or MIN:MAX; MIN counts for the job's minimum")
    add("--node-rank", "--node_rank", type=int, help="accepted; 0 hosts the authority")
    add("--standalone", action="store_true", help="accepted: it is the default")
    add("--max-restarts", "--max_restarts", type=int, default=3, help="of a replica, in the window")
    add("--restart-window", type=float, default=300.0, metavar="S")
    add("--grace", type=float, default=30.0, metavar="S", help="from SIGTERM to SIGKILL")
    add("--elastic-timeout", type=float, default=30.0, metavar="S")
    add("--dns-timeout", type=float, default=300.0, metavar="S")
    add("--log-dir", "--log_dir", type=Path)
    add("--error-file", type=Path, default=env.get("TORCHELASTIC_ERROR_FILE"))
    add("--no-python", "--no_python", action="store_true", help="the script is a program")
    add("--recipe", help="train a recipe instead of a script")
    add("--set", action="append", default=[], metavar="A.B=C", help="change a recipe's value")
    add("-m", "--module", action="store_true", help="the script is a module")
    add("script", nargs=argparse.REMAINDER)
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1 (got {value})")
    return value


def _range(name: str, text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= low <= high:
        raise ValueError(f"{name}: must be N or MIN:MAX, such as 2:8 (got {text!r})")
    return low, high


def _sizes(args: argparse.Namespace) -> tuple[int, int, int]:
    """Least, most replicas, and ranks of each; from two of the three, the third."""
    least, most = _range("--replicas", args.replicas) if args.replicas else (0, 0)
    ranks, total = args.ranks_per_replica or 0, args.nproc_per_node or 0
    if total and most and ranks and total != most * ranks:
        raise ValueError(
            f"--nproc-per-node: {total} isn't --replicas {most} times --ranks-per-replica {ranks}; "
            "leave one out"
        )
    divisor = most or ranks or 1
    if total % divisor:
        raise ValueError(f"--nproc-per-node: {total} can't be split by {divisor}")
    if total:
        ranks = total // most if most else ranks or 1
        most = total // ranks
    return least or most or 1, most or 1, ranks or 1


def _options(args: argparse.Namespace) -> AgentOptions:
    script, module = tuple(args.script), args.module
    if args.recipe:
        settings = [word for each in args.set for word in ("--set", each)]
        script = ("trainer_runtime.recipes.run", args.recipe, *settings, *script)
        module = True
    elif not script:
        raise ValueError("script: name one, or a module with -m, or --recipe NAME")
    for name in ("standbys", "max_restarts", "grace", "elastic_timeout", "dns_timeout"):
        if getattr(args, name) < 0:
            raise ValueError(f"--{name.replace('_', '-')}: must not be negative")
    least, most, ranks = _sizes(args)
    nodes, _ = _range("--nnodes", args.nnodes)
    authority, host = _authority(args)
    agent = os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"
    return AgentOptions(
        script=script, module=module, program=args.no_python, replicas=most,
        low=least, least=least * nodes,
        ranks=ranks, standbys=args.standbys, warm_script=args.warm_script,
        preload="" if args.no_python else args.preload, job=args.rdzv_id or uuid.uuid4().hex[:8],
        agent=agent, authority=authority, host_authority=host, max_restarts=args.max_restarts,
        restart_window=args.restart_window, grace=args.grace,
        elastic_timeout=args.elastic_timeout, dns_timeout=args.dns_timeout, log_dir=args.log_dir,
        error_file=Path(args.error_file) if args.error_file else None,
    )  # fmt: skip


def _authority(args: argparse.Namespace) -> tuple[str, tuple[str, int] | None]:
    """Where ranks find it, and where this agent hosts it (None: somebody else does)."""
    if args.headless_service:
        # Pods of an indexed Job, and of a StatefulSet, have the host name NAME-INDEX.
        name, dash, index = socket.gethostname().rpartition("-")
        index = os.environ.get("JOB_COMPLETION_INDEX") or index
        if not dash or not index.isdigit():
            raise ValueError(
                f"--headless-service: the host name must be NAME-INDEX (got "
                f"{socket.gethostname()!r}); make it an indexed Job or a StatefulSet"
            )
        address = f"{name}-0.{args.headless_service}:{AUTHORITY_PORT}"
        return address, ("0.0.0.0", AUTHORITY_PORT) if index == "0" else None
    if args.rdzv_endpoint and not args.authority:
        host, _, port = args.rdzv_endpoint.partition(":")
        address = f"{host}:{port or AUTHORITY_PORT}"
        where = parse_address(address, what="--rdzv-endpoint")
        hosts = args.node_rank == 0 if args.node_rank is not None else is_here(host)
        return address, where if hosts else None
    if args.authority:
        for each in args.authority.split(","):
            parse_address(each, what="--authority")
        return args.authority, None
    return "", ("127.0.0.1", 0)


def is_here(host: str) -> bool:
    """Whether `host` is an address of this machine."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True
