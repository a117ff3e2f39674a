"""Loader processes: exceptions, deaths, and none that outlives its parent."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from trainer_runtime.data.mapstyle import MapStyle, WorkerDied


class Squares:
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 7:
            raise LookupError("no 7")
        if index == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.tensor([index * index, int(torch.randint(1 << 30, ()))])


@pytest.fixture(scope="module")
def loader() -> Iterator[MapStyle]:
    with MapStyle(Squares(), workers=1, seed=3) as made:
        yield made


def test_batches_are_collated_and_seeded_by_index(loader: MapStyle) -> None:
    one, two = loader([2, 3]), loader([3, 2])
    assert one[:, 0].tolist() == [4, 9]
    assert torch.equal(one, two.flip(0))


def test_exceptions_and_deaths_are_raised_and_the_next_load_works(loader: MapStyle) -> None:
    with pytest.raises(LookupError, match="no 7"):
        loader([7])
    with pytest.raises(WorkerDied, match="exit code"):
        loader([8])
    assert loader([4])[0, 0] == 16


def test_in_this_process() -> None:
    assert MapStyle(Squares())([1, 2])[:, 0].tolist() == [1, 4]


def test_workers_die_with_their_parent() -> None:
    script = (
        "import signal\n"
        "from tests.integration.trainer.test_data_workers import Squares\n"
        "from trainer_runtime.data.mapstyle import MapStyle\n"
        "if __name__ == '__main__':\n"
        "    loader = MapStyle(Squares(), workers=1)\n"
        "    loader([1])\n"
        "    print(loader._workers[0].process.pid, flush=True)\n"
        "    signal.pause()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        watched = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
        ended, _, _ = select.select([watched], [], [], 5)
        os.close(watched)
        assert ended
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
