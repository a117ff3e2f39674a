"""`concertina-run`: torchrun's habits for elastic training. See docs/guides/trainer/launcher.md."""

from __future__ import annotations

import asyncio
import sys

from trainer_runtime.agent.agent import MISCONFIGURED, Agent
from trainer_runtime.agent.logs import Console
from trainer_runtime.agent.options import parse


def main(argv: list[str] | None = None) -> None:
    options = parse(argv)
    console = Console()
    try:
        code = asyncio.run(Agent(options, console).run())
    except OSError as error:  # the authority's port is taken, no processes left, ...
        console.write(2, f"[agent] {error}\n".encode())
        code = MISCONFIGURED
    finally:
        console.close()
    sys.exit(code)


if __name__ == "__main__":
    main()
