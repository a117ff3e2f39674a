"""When and how a replica's state goes to disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from trainer_runtime import checkpoint
from trainer_runtime.client import Client
from trainer_runtime.replica import ReplicaState
from trainer_runtime.reporting import Reporter
from trainer_runtime.state import Packed


class Keeper:
    """Writes checkpoints into `folder`; without one, does nothing. A failure is said and reported:
    it keeps neither training nor a leaving replica from going on."""

    def __init__(
        self,
        folder: Path | None,
        state: ReplicaState,
        client: Client,
        reporter: Reporter,
        log: Callable[[str], None],
    ) -> None:
        self.folder = folder
        self._state, self._client, self._reporter, self._log = state, client, reporter, log
        self._writer: threading.Thread | None = None

    def now(self) -> None:
        """In this thread, after one that is being written."""
        self.wait()
        # Only a state that was trained or taken over is worth keeping.
        if self.folder is not None and self._client.claim.live:
            with self._client.paused():
                self._publish(self._state.pack(), self._state.counters.step)

    def behind(self) -> None:
        """Copy the state now and write it in the background; passed over while one is written."""
        if self.folder is None or (self._writer is not None and self._writer.is_alive()):
            return
        packed, step = self._state.pack(), self._state.counters.step
        self._writer = threading.Thread(
            target=self._publish, args=(packed, step), name="checkpoint", daemon=True
        )
        self._writer.start()

    def wait(self) -> None:
        if self._writer is not None:
            self._writer.join()

    def _publish(self, packed: Packed, step: int) -> None:
        assert self.folder is not None
        began, epoch = time.monotonic(), self._client.claim.epoch
        try:
            path = checkpoint.write(self.folder, step, packed)
        except OSError as error:
            self._log(f"checkpoint of step {step} not written: {error}")
            self._reporter.checkpoint(epoch=epoch, step=step, path=None, problem=str(error))
            return
        self._log(f"checkpoint of step {step} written: {path}")
        self._reporter.checkpoint(
            epoch=epoch, step=step, path=path, size=packed.size_bytes,
            seconds=time.monotonic() - began,
        )  # fmt: skip
