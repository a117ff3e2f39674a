"""Recipes as files: all of them are right, and every mistake is refused with its remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trainer_runtime.recipes import run
from trainer_runtime.recipes.load import load, merge, names
from trainer_runtime.recipes.schema import Recipe, RecipeError, Schedule, recipe

EVERY = ["gpt-oss-120b", "gpt-oss-20b", "gpt-oss-tiny", "llama-tiny", "llama3-70b", "llama3-8b"]
LEAST: dict[str, Any] = {
    "name": "x",
    "model": {"llama": {
        "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1,
    }},
    "data": {"length": 4},
    "training": {"global_batch": 4},
    "optimizer": {"learning_rate": 0.1},
}  # fmt: skip


def write(folder: Path, **more: Any) -> str:
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump(merge(LEAST, more)))
    return str(path)


def test_names() -> None:
    assert names() == EVERY


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("mode", ["pretrain", "finetune", "lora"])
def test_every_recipe_is_right_in_every_mode(name: str, mode: str) -> None:
    got = load(name, [f"mode={mode}"]).recipe
    assert (got.name, got.mode) == (name, mode)


@pytest.mark.parametrize(
    ("setting", "want"),
    [
        ("training.micro_batchs=2",
         "training.micro_batchs: unknown key; did you mean micro_batch?"),
        ("trainig.dtype=float32", "trainig: unknown key; did you mean training?"),
        ("model.llama.layers=2", "model.llama.layers: unknown key; known: hidden_size, "),
        ("training.dtype=fp16",
         "training.dtype: must be one of float32, bfloat16 (got 'fp16')"),
        ("training.micro_batch=two", "training.micro_batch: must be a whole number (got 'two')"),
        ("training.micro_batch=true", "training.micro_batch: must be a whole number (got True)"),
        ("training.micro_batch=1.5", "training.micro_batch: must be a whole number (got 1.5)"),
        ("training.micro_batch=0", "training.micro_batch: must be at least 1 (got 0)"),
        ("training.micro_batch=9",
         "training.micro_batch: must be at most training.global_batch, 8 (got 9)"),
        ("training.exact=maybe", "training.exact: must be true or false (got 'maybe')"),
        ("training=3", "training: must be a mapping of keys (got 3)"),
        ("optimizer.learning_rate=.nan",
         "optimizer.learning_rate: must be a finite number (got nan)"),
        ("optimizer.learning_rate=0", "optimizer.learning_rate: must be more than 0 (got 0.0)"),
        ("optimizer.beta2=1", "optimizer.beta2: must be less than 1 (got 1.0)"),
        ("optimizer.learning_rate=",
         "optimizer.learning_rate: must be a finite number (got None)"),
        ("schedule.kind=cosine", "training.total_steps: must be given for schedule.kind cosine; "
         "give it, or take schedule.kind constant"),
        ("lora.targets=q_proj",
         "lora.targets: must be a list of names, such as [a, b] (got 'q_proj')"),
        ("data.length=513",
         "data.length: must be at most the model's max_position_embeddings, 512 (got 513)"),
        ("model.llama=null",
         "model: must have exactly one of llama and gpt_oss; leave the other out"),
        ("model.llama.num_key_value_heads=2",
         "model: num_key_value_heads must divide num_attention_heads (got 2 and 5)"),
        ("model.llama.hidden_size=161",
         "model.llama: num_attention_heads must divide hidden_size (got 5 and 161)"),
        ("mode=tune", "mode: must be one of pretrain, finetune, lora (got 'tune')"),
        ("training.micro_batch", "--set training.micro_batch: must be path=value, such as "
         "training.micro_batch=4"),
        ("a..b=1", "--set a..b=1: must be path=value, such as training.micro_batch=4"),
        ("sizes.4.data=1", "--set sizes.4.data=1: sizes can't be set; set the value itself"),
        ("name=[", "--set name=[: the value isn't YAML; quote it"),
    ],
)  # fmt: skip
def test_mistakes_are_refused(setting: str, want: str) -> None:
    with pytest.raises(RecipeError) as refused:
        load("llama-tiny", [setting])
    assert str(refused.value).startswith(want)
    assert str(refused.value) == want or want.endswith(" ")


def test_unknown_recipe() -> None:
    with pytest.raises(RecipeError) as refused:
        load("llama3-8")
    assert str(refused.value) == "recipe: 'llama3-8' isn't there; did you mean llama3-8b?"


def test_what_is_left_out_is_named() -> None:
    tree = {**LEAST, "data": {}}
    with pytest.raises(RecipeError, match=r"^data\.length: is missing; it has no default, give it"):
        recipe(tree)


@pytest.mark.parametrize(
    ("settings", "path", "want"),
    [
        (["optimizer.learning_rate=3e-4"], "optimizer.learning_rate", 3e-4),  # a text in YAML 1.1
        (["optimizer.learning_rate=1"], "optimizer.learning_rate", 1.0),
        (["training.exact=true"], "training.exact", True),
        (["training.max_grad_norm=null"], "training.max_grad_norm", None),
        (["lora.targets=[q_proj, lm_head]"], "lora.targets", ("q_proj", "lm_head")),
        (["training.seed=3", "training.seed=4"], "training.seed", 4),
        (["training.checkpoint_dir=a=b"], "training.checkpoint_dir", "a=b"),
        (["mode=lora"], "schedule.warm_up_steps", 20),
        (["mode=lora", "schedule.warm_up_steps=7"], "schedule.warm_up_steps", 7),
        (["mode=finetune"], "optimizer.learning_rate", 1e-4),
        (["data.path=/d", "data.demo=false"], "data.demo", False),
    ],
)
def test_settings(settings: list[str], path: str, want: Any) -> None:
    value: Any = load("llama-tiny", settings).recipe
    for name in path.split("."):
        value = getattr(value, name)
    assert (value, type(value)) == (want, type(want))


def test_of_a_setting_only_its_value_changes() -> None:
    before, after = load("llama-tiny").tree, load("llama-tiny", ["training.seed=4"]).tree
    assert after == merge(before, {"training": {"seed": 4}})
    assert "seed" not in before["training"]


SIZES = {
    ">=4": {"training": {"micro_batch": 2}},
    8: {"training": {"global_batch": 16, "micro_batch": 3}},
    "<2": {"training": {"exact": True}},
}


@pytest.mark.parametrize(
    ("replicas", "want", "held"),
    [
        (None, (4, 1, False), ()),
        (1, (4, 1, True), ("<2",)),
        (2, (4, 1, False), ()),
        (4, (4, 2, False), (">=4",)),
        (8, (16, 3, False), (">=4", "8")),
        (9, (4, 2, False), (">=4",)),
    ],
)
def test_sizes(tmp_path: Path, replicas: int | None, want: Any, held: tuple[str, ...]) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({**LEAST, "sizes": SIZES}, sort_keys=False))
    loaded = load(str(path), max_replicas=replicas)
    training = loaded.recipe.training
    assert (training.global_batch, training.micro_batch, training.exact) == want
    assert loaded.sizes == held


def test_a_setting_wins_over_a_size(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, sizes=SIZES), ["training.micro_batch=4"], max_replicas=8)
    assert loaded.recipe.training.micro_batch == 4


@pytest.mark.parametrize(
    ("more", "want"),
    [
        ({"sizes": {"many": {}}},
         'sizes.many: must be a number of replicas or a bound, such as 4 or ">=8"'),
        ({"sizes": {">=4": {"training": {"micro_batch": 0}}}},  # though no size was chosen
         "sizes.>=4: training.micro_batch: must be at least 1 (got 0)"),
        ({"sizes": {"4": 3}}, "sizes.4: must be a mapping of keys (got 3)"),
        ({"sizes": {"4": {"model": {"llama": {"hidden_size": 16}}}}},
         "sizes.4.model: can't differ; a recipe of its own can"),
        ({"modes": {"lorra": {}}}, "modes.lorra: unknown key; did you mean lora?"),
        ({"modes": {"lora": {"data": {"lenght": 3}}}},
         "modes.lora: data.lenght: unknown key; did you mean length?"),
        ({"model": {"gpt_oss": {"num_hidden_layers": 1, "num_local_experts": 2}, "llama": None}},
         "model.gpt_oss: num_experts_per_tok must be at most num_local_experts (got 4 and 2)"),
    ],
)  # fmt: skip
def test_files_are_refused(tmp_path: Path, more: dict[str, Any], want: str) -> None:
    with pytest.raises(RecipeError) as refused:
        load(write(tmp_path, **more))
    assert str(refused.value) == want


def test_defaults() -> None:
    got: Recipe = recipe(LEAST)
    assert got.schedule == Schedule(kind="constant", warm_up_steps=0, final=0.1)
    assert (got.mode, got.training.dtype, got.model.weights) == ("pretrain", "float32", None)


def test_what_is_shown_is_the_same_recipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.main(["llama3-8b", "--show", "--set", "mode=lora", "--set", "data.path=/d"])
    (tmp_path / "shown.yaml").write_text(capsys.readouterr().out)
    want = load("llama3-8b", ["mode=lora", "data.path=/d"]).recipe
    assert load(str(tmp_path / "shown.yaml")).recipe == want


@pytest.mark.parametrize(
    ("argv", "want"),
    [
        (["llama-tiny", "--set", "data.lenght=3"], "llama-tiny: data.lenght: unknown key; did you "
         "mean length?"),
        (["/nowhere/own.yaml"], "/nowhere/own.yaml: [Errno 2] No such file or directory: "
         "'/nowhere/own.yaml'"),
    ],
)  # fmt: skip
def test_command_refuses(argv: list[str], want: str) -> None:
    with pytest.raises(SystemExit) as refused:
        run.main(argv)
    assert refused.value.code == want


@pytest.mark.parametrize(
    ("argv", "env", "want"),
    [
        ([], "", "name: give a recipe: gpt-oss-120b"),
        (["x", "--max-replicas", "0"], "", "--max-replicas: must be at least 1 (got 0)"),
        (["x"], "many", "invalid int value: 'many'"),
    ],
)
def test_arguments_refused(
    argv: list[str], env: str, want: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("CONCERTINA_MAX_REPLICAS", env)
    with pytest.raises(SystemExit):
        run.parse(argv)
    assert want in capsys.readouterr().err


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    run.main(["--list"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == EVERY
