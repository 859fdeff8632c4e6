"""Layering of recipes: who wins, who is named as the source, what a wrong key is told."""

from pathlib import Path

import pytest
from pydantic import Field

from flows import recipe as recipes
from flows.explain import paths
from flows.recipe import Recipe, load
from stages.declaration import SeededParams
from stages.errors import UsageError


class Optimizer(SeededParams):
    rate: float = 0.1
    betas: list[float] = Field(default=[0.9, 0.99])


class Rl(SeededParams):
    steps: int = Field(default=100, ge=1)
    optimizer: Optimizer = Optimizer()


class Example(Recipe):
    model: str | None = None
    teacher: Rl | str = Rl()
    rl: Rl = Rl()


@pytest.fixture
def built_in(tmp_path: Path) -> Path:
    """A folder of recipes: the built-in one and a profile."""
    folder = tmp_path / "example"
    folder.mkdir()
    (folder / "recipe.yaml").write_text("rl: {steps: 10, optimizer: {betas: [0.8, 0.9]}}\n")
    (folder / "cpu.yaml").write_text("rl: {steps: 20}\nruntime: {threads: 3}\n")
    return folder


def write(folder: Path, text: str) -> Path:
    file = folder.parent / "mine.yaml"
    file.write_text(text)
    return file


def test_later_layers_win_one_by_one(built_in: Path) -> None:
    file = write(built_in, "rl: {steps: 30}")
    assert Example().rl.steps == 100
    assert load(Example, built_in, profile="cpu").recipe.rl.steps == 20
    assert load(Example, built_in, profile="cpu", file=file).recipe.rl.steps == 30
    last = load(Example, built_in, profile="cpu", file=file, settings=["rl.steps=40", "rl.steps=41"])
    assert last.recipe.rl.steps == 41
    assert last.recipe.runtime.threads == 3


def test_lists_replace_and_mappings_merge(built_in: Path) -> None:
    file = write(built_in, "rl: {optimizer: {betas: [0.5]}}")
    recipe = load(Example, built_in, profile="cpu", file=file).recipe
    assert recipe.rl.optimizer.betas == [0.5]
    assert recipe.rl.steps == 20


def test_every_changed_value_names_its_source(built_in: Path) -> None:
    file = write(built_in, "teacher: some/model\nrl: {optimizer: {rate: 0.1}}")
    loaded = load(Example, built_in, profile="cpu", file=file, settings=["model=a/b"])
    told = {setting.key: (setting.value, setting.source) for setting in loaded.settings()}
    assert told == {  # rl.optimizer.rate was set to what it is by default
        "runtime.threads": (3, "profile cpu"),
        "model": ("a/b", "--set model=a/b"),
        "teacher": ("some/model", str(file)),
        "rl.steps": (20, "profile cpu"),
        "rl.optimizer.betas": ([0.8, 0.9], "the built-in recipe"),
    }


def test_seed_reaches_every_stage_that_sets_none(built_in: Path) -> None:
    recipe = load(Example, built_in, profile="cpu", settings=["seed=7", "rl.seed=1"]).recipe
    assert isinstance(recipe.teacher, Rl)
    assert (recipe.seed, recipe.teacher.seed, recipe.rl.seed) == (7, 7, 1)
    assert Example.model_validate(recipe.model_dump()) == recipe


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("rl.stepz=3", 'unknown key "rl.stepz" in --set rl.stepz=3: did you mean "rl.steps"?'),
        ("rate=3", 'unknown key "rate" in --set rate=3: did you mean "teacher.optimizer.rate"?'),
        ("rl.steps=x", "rl.steps in --set rl.steps=x: input should be a valid integer"),
        ("rl.steps=0", "rl.steps in --set rl.steps=0: input should be greater than or equal to 1"),
        ("rl=3", "rl in --set rl=3: input should be"),
        ("runtime.qqqq=3", "valid here: "),
        ("model.x=3", "model in --set model.x=3: input should be a valid string"),
        (
            "teacher.stepz=3",
            'unknown key "teacher.stepz" in --set teacher.stepz=3: did you mean "teacher.steps"?',
        ),
    ],
)
def test_a_wrong_setting_is_told_in_one_sentence(built_in: Path, setting: str, told: str) -> None:
    with pytest.raises(UsageError, match=r"^[^\n]+$") as refused:
        load(Example, built_in, profile="cpu", settings=[setting])
    assert told in str(refused.value)


def test_an_unknown_key_names_its_file(built_in: Path) -> None:
    file = write(built_in, "rl:\n  optimiser: {rate: 1}\n")
    with pytest.raises(UsageError) as refused:
        load(Example, built_in, profile="cpu", file=file)
    assert str(refused.value) == f'unknown key "rl.optimiser" in {file}: did you mean "rl.optimizer"?'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rl: {steps: 1", "is not valid YAML"),
        ("- 1", "must be a mapping"),
        ("seed: 1\nseed: 2", "the key 'seed' is given twice"),
    ],
)
def test_a_file_that_is_no_recipe(built_in: Path, text: str, told: str) -> None:
    file = write(built_in, text)
    with pytest.raises(UsageError) as refused:
        load(Example, built_in, profile="cpu", file=file)
    assert told in str(refused.value)
    assert str(file) in str(refused.value)


def test_a_missing_file_and_profile(built_in: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the recipe"):
        load(Example, built_in, profile="cpu", file=built_in / "none.yaml")
    with pytest.raises(UsageError, match="no profile 'tpu' of example: choose one of cpu"):
        load(Example, built_in, profile="tpu")


@pytest.mark.parametrize("setting", ["rl.steps", "=3", "rl..steps=3"])
def test_a_setting_of_another_form(built_in: Path, setting: str) -> None:
    with pytest.raises(UsageError, match="KEY=VALUE"):
        load(Example, built_in, profile="cpu", settings=[setting])


def test_profile_follows_the_machine(built_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (built_in / "gpu.yaml").write_text("rl: {steps: 99}")
    monkeypatch.setattr(recipes, "cuda_is_there", lambda: True)
    assert load(Example, built_in).recipe.rl.steps == 99
    monkeypatch.setattr(recipes, "cuda_is_there", lambda: False)
    assert load(Example, built_in).recipe.rl.steps == 20


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_devices_are_not_there(hidden: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert not recipes.cuda_is_there()


def test_cuda_is_what_nvidia_smi_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert recipes.cuda_is_there() == Path("/dev/nvidia0").exists()
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'GPU 0: Something'\n")
    smi.chmod(0o755)
    assert recipes.cuda_is_there()
    smi.write_text("#!/bin/sh\nexit 9\n")
    assert recipes.cuda_is_there() == Path("/dev/nvidia0").exists()


def test_paths_cover_nested_models_and_unions() -> None:
    assert {"seed", "teacher.optimizer.rate", "rl.steps", "runtime.threads"} <= set(paths(Example))
