"""Forks replicas and authorities from one process that has imported torch.

    python -m tests.integration.trainer.zygote [llama]

Reads requests from standard input, one JSON object a line: {main, arguments, environment, output};
answers with the child's process id. When a child ends, its exit code (negative for a signal) is
written to OUTPUT.code. The end of standard input ends every child and then the zygote.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed
import torch.optim.lr_scheduler

from tests.integration.trainer import worker
from trainer_runtime import authority

MAINS = {"worker": worker.main, "authority": authority.main}
if "llama" in sys.argv[1:]:
    from transformers.models.llama import modeling_llama  # noqa: F401

    from trainer_runtime.examples import tiny_llama

    MAINS["llama"] = tiny_llama.main
# The optimizer's own lazy imports, so that no child has to do them.
_weight = torch.nn.Parameter(torch.zeros(1))
_weight.grad = torch.zeros(1)
torch.optim.AdamW([_weight]).step()


def become(request: dict[str, Any]) -> None:
    """In the child: its output, environment and arguments, then its main function. No return."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((0, nothing), (1, output), (2, output)):
            os.dup2(new, old)
        os.close(output)
        os.close(nothing)
        os.environ.update(request["environment"])
        sys.argv = [request["main"], *request["arguments"]]
        MAINS[request["main"]]()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def reap(children: dict[int, str]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        path = Path(children.pop(pid) + ".code")
        partial = path.with_suffix(".partial")
        partial.write_text(str(os.waitstatus_to_exitcode(status)))
        partial.replace(path)


def main() -> None:
    torch.set_num_threads(1)
    children: dict[int, str] = {}
    print("ready", flush=True)
    buffer = b""
    while True:
        ready, _, _ = select.select([0], [], [], 0.02)
        reap(children)
        if not ready:
            continue
        data = os.read(0, 1 << 16)
        if not data:
            break
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            pid = os.fork()
            if pid == 0:
                become(request)
            children[pid] = request["output"]
            print(pid, flush=True)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
