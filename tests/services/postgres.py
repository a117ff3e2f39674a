"""A PostgreSQL cluster of one's own: a temporary folder, a free port, nothing written to be kept.

initdb and the server refuse to run as root; there they run as the user postgres that Debian's
package makes, while the tests stay root and connect over TCP.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg
from psycopg import sql

from controlplane.supervisor.posix import die_with_parent, free_port

START_SECONDS = 30.0
USER = "concertina"


def postgres_binaries() -> Path | None:
    """The folder with `initdb` and `postgres`: Debian's newest, else the one on PATH, else None."""
    debian = sorted(
        (p for p in Path("/usr/lib/postgresql").glob("*/bin") if (p / "initdb").exists()),
        key=lambda p: float(p.parent.name),
    )
    if debian:
        return debian[-1]
    found = shutil.which("initdb")
    # resolved: a link beside other programs must lead to the folder that has postgres too
    return Path(found).resolve().parent if found else None


def skip_reason() -> str | None:
    """Why there can be no cluster here, as a sentence for the person at the terminal; or None."""
    if postgres_binaries() is None:
        return "PostgreSQL is not installed (apt-get install postgresql)"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return "the server won't run as root and there is no user postgres to run it as"
    return None


class PostgresCluster:
    """Starts on `start()` or `with`; `url` is a DATABASE_URL with the right to make databases."""

    def __init__(self) -> None:
        self.port = 0
        self._folder: Path | None = None
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgres://{USER}@127.0.0.1:{self.port}/postgres"

    def start(self) -> PostgresCluster:
        if reason := skip_reason():
            raise RuntimeError(reason)
        binaries = postgres_binaries()
        assert binaries is not None
        self._folder = Path(tempfile.mkdtemp(prefix="concertina-postgres-"))
        data, log = self._folder / "data", self._folder / "log"
        log.touch()
        if os.geteuid() == 0:
            for path in (self._folder, log):
                shutil.chown(path, "postgres", "postgres")
        made = subprocess.run(
            [
                str(binaries / "initdb"),
                "-D",
                str(data),
                "-U",
                USER,
                "--auth=trust",
                "-E",
                "UTF8",
                "--no-locale",
                "--no-sync",
            ],
            capture_output=True,
            text=True,
            **_as_postgres(),
        )
        if made.returncode != 0:
            self.stop()
            raise RuntimeError(f"initdb failed:\n{made.stdout[-500:]}{made.stderr[-1500:]}")
        for _ in range(5):  # another process may take the port between the look and the bind
            self.port = free_port()
            if self._launch(binaries, data, log):
                return self
        tail = log.read_text(errors="replace")[-2000:]
        self.stop()
        raise RuntimeError(f"the PostgreSQL server did not start; its log says:\n{tail}")

    def _launch(self, binaries: Path, data: Path, log: Path) -> bool:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
            "max_connections": 60,
            "unix_socket_directories": str(self._folder),
            "shared_buffers": "64MB",
        }
        command = [str(binaries / "postgres"), "-D", str(data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with log.open("ab") as stream:
            self._server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGQUIT),
                **_as_postgres(),
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._server.poll() is None:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return True
            except psycopg.OperationalError:
                time.sleep(0.02)  # poll interval of a condition with a deadline
        self._end_server()
        return False

    def create_database(self, name: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))

    def _end_server(self) -> None:
        if self._server is None:
            return
        self._server.send_signal(signal.SIGINT)  # "fast": ends open sessions
        try:
            self._server.wait(10)
        except subprocess.TimeoutExpired:
            self._server.send_signal(signal.SIGQUIT)  # "immediate": its children too
            self._server.wait(10)
        self._server = None

    def stop(self) -> None:
        self._end_server()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> PostgresCluster:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.stop()


def _as_postgres() -> dict[str, Any]:
    """Arguments for subprocess: the server's user, and a folder that this user may enter."""
    if os.geteuid() != 0:
        return {"cwd": "/"}
    return {"cwd": "/", "user": "postgres", "group": "postgres", "extra_groups": []}
