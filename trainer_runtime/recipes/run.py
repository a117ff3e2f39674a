"""Train one replica of a recipe.

    python -m trainer_runtime.recipes.run llama-tiny --set training.total_steps=200

Start it as often as there are replicas, with the same arguments; they find each other through
CONCERTINA_AUTHORITY. `--list`, `--show` and `--estimate` start nothing.
"""

from __future__ import annotations

from trainer_runtime.drain import Drain

# First of all: importing torch takes a while, and SIGTERM may come any time.
DRAIN = Drain() if __name__ == "__main__" else None

import argparse  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from collections.abc import Sequence  # noqa: E402

import yaml  # noqa: E402

from trainer_runtime.recipes import load as files  # noqa: E402
from trainer_runtime.recipes.schema import Recipe, RecipeError  # noqa: E402

_MAX_REPLICAS = "CONCERTINA_MAX_REPLICAS"


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    text = os.environ.get(_MAX_REPLICAS, "")
    parser = argparse.ArgumentParser(
        prog="trainer_runtime.recipes.run", description="Train one replica of a recipe."
    )
    parser.add_argument("name", nargs="?", help="a recipe of --list, or a path ending with .yaml")
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", help="change a value; may repeat"
    )
    parser.add_argument(
        "--max-replicas", type=int, default=text or None,
        help=f"the most replicas the job may have: chooses among `sizes` (else {_MAX_REPLICAS})",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="print the recipes' names and end")
    parser.add_argument("--show", action="store_true", help="print the recipe as used and end")
    parser.add_argument("--estimate", action="store_true", help="print its memory and end")
    parser.add_argument(
        "--check-memory", type=float, metavar="GIB", help="refuse to start if it needs more"
    )
    args = parser.parse_args(argv)
    if args.max_replicas is not None and args.max_replicas < 1:
        parser.error(f"--max-replicas: must be at least 1 (got {args.max_replicas})")
    if args.name is None and not args.list:
        parser.error(f"name: give a recipe: {', '.join(files.names())}")
    return args


def main(argv: Sequence[str] | None = None) -> None:
    args = parse(argv)
    try:
        if args.list:
            for name in files.names():
                print(f"{name:<14}{files.load(name).recipe.about}")
            return
        loaded = files.load(args.name, args.set, max_replicas=args.max_replicas)
        if args.show:
            print(yaml.safe_dump(loaded.tree, sort_keys=False), end="")
            return
        if args.estimate or args.check_memory is not None:
            _memory(loaded.recipe, args.max_replicas or 1, args.check_memory)
            if args.estimate:
                return
        _train(loaded)
    except (RecipeError, OSError) as error:
        sys.exit(f"{args.name}: {error}")


def _memory(recipe: Recipe, replicas: int, most: float | None) -> None:
    """Print the estimate. Raises RecipeError if it is more than `most` GiB."""
    from trainer_runtime.recipes.estimate import GIB, memory, table

    print(table(recipe, replicas), file=sys.stderr if most is not None else sys.stdout, flush=True)
    needed = memory(recipe, replicas).total / GIB
    if most is not None and needed > most:
        raise RecipeError(
            f"memory: a replica needs {needed:.1f} GiB, more than {most:g}; try a smaller "
            f"training.micro_batch or data.length, training.gradient_checkpointing=true, "
            f"training.dtype=bfloat16 or mode=lora"
        )


def _train(loaded: files.Loaded) -> None:
    """Until the last step, or until this replica is asked to leave."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from trainer_runtime.recipes.training import make_trainer

    try:
        trainer = make_trainer(loaded.recipe, DRAIN)
    except ValueError as error:  # an environment that is incomplete, too
        raise RecipeError(str(error)) from error
    every = loaded.recipe.training.print_every
    if loaded.sizes:
        trainer.log(f"sizes: {', '.join(loaded.sizes)}")
    with trainer:
        for done in trainer:
            if done.rank == 0 and done.step % every == 0:
                trainer.log(f"step {done.step} loss {done.loss:.4f} on {done.world_size} replicas")


if __name__ == "__main__":
    main()
