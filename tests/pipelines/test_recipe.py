"""Recipes are checked whole before anything runs."""

from pathlib import Path

import pytest

from pipelines.recipe import find_recipe, load_recipe, shipped_recipes
from stages.errors import UsageError

Files = dict[str, list[str]]


def test_the_files_of_the_user_and_the_preset_go_in(recipe_file: Path, files: Files) -> None:
    recipe = load_recipe(recipe_file, files, {"model": {"optimizer": {"lr": 0.5}}})
    assert recipe.stages["tokens"].references == {"train": tuple(files["train"])}
    config = recipe.config("model").model_dump()
    assert config["steps"] == 2
    assert config["optimizer"]["lr"] == 0.5
    assert config["schedule"]["warmup"] == 100


def test_precision_reaches_the_stages_that_compute(recipe_file: Path, files: Files) -> None:
    recipe = load_recipe(recipe_file, files, {}).with_precision("bf16")
    assert recipe.config("model").model_dump()["precision"] == "bf16"
    assert recipe.config("datastore").model_dump()["precision"] == "bf16"
    assert "precision" not in recipe.stages["tokens"].settings


@pytest.mark.parametrize("name", shipped_recipes())
def test_shipped_recipes_are_valid(name: str) -> None:
    path = find_recipe(name)
    try:
        load_recipe(path, {}, {})
    except UsageError as error:
        assert "--train FILE --valid FILE --test FILE" in str(error)
        load_recipe(path, {name: ["a.txt"] for name in ("train", "valid", "test")}, {})


def test_the_recipes_of_both_papers_are_shipped() -> None:
    caches = {f"neural-cache-{corpus}" for corpus in ("ptb", "wikitext2", "text8")}
    others = {"knn-lm-wikitext103", "knn-lm-wikitext2", "quickstart"}
    assert set(shipped_recipes()) == caches | {f"{name}-small" for name in caches} | others


@pytest.mark.parametrize("name", [name for name in shipped_recipes() if name.startswith("neural-cache")])
def test_caches_are_read_by_both_readers_on_an_lstm_trained_without_them(name: str) -> None:
    recipe = load_recipe(find_recipe(name), {split: ["a.txt"] for split in ("train", "valid", "test")}, {})
    read = {stage: recipe.config(stage).model_dump()["memory"] for stage in ("joint", "report")}
    assert read == {
        "joint": ("long:reader=joint,theta=tune,alpha=tune,size=tune",),
        "report": ("long:theta=tune,lambda=tune,size=tune",),
    }
    assert recipe.config("model").model_dump()["model"]["backbone"] == "lstm"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"train"\nfrom', '"trian"\nfrom', "Stage 'model': there is no command 'trian'; did you mean 'train'?"),
        ('from = "tokens"', 'form = "tokens"', "There is no setting 'stages.model.form'; did you mean 'from'?"),
        ('from = "tokens"', "", "Stage 'model' has no `from`"),
        ('from = "tokens"', 'from = "datastore"', "Stage 'model' reads 'datastore', which is no stage above it"),
        ("steps = 2", "setps = 2", "stage 'model': There is no setting 'setps'; did you mean 'steps'?"),
        ("steps = 2", "steps = -2", "stage 'model': steps: input should be greater than 0"),
        ('"tiny"', '"tinny"', "There is no preset 'tinny'; did you mean 'tiny'?"),
        ("with = { train", "with = { trian", "tokenize takes no reference 'trian'; did you mean 'train'?"),
        ('index = "flat"', 'indx = "flat"', "stage 'index': There is no setting 'indx'; did you mean 'index'?"),
    ],
)
def test_mistakes_are_named(recipe_file: Path, files: Files, old: str, new: str, message: str) -> None:
    text = recipe_file.read_text()
    assert old in text
    recipe_file.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        load_recipe(recipe_file, files, {})
    assert message in str(caught.value)


def test_files_that_are_missing_or_not_asked_for_are_named(recipe_file: Path, files: Files) -> None:
    with pytest.raises(UsageError, match="The recipe small needs --train FILE"):
        load_recipe(recipe_file, {}, {})
    with pytest.raises(UsageError, match="The recipe has no input 'test'"):
        load_recipe(recipe_file, {**files, "test": ["x"]}, {})


def test_settings_for_a_stage_that_is_not_there_are_refused(recipe_file: Path, files: Files) -> None:
    with pytest.raises(UsageError, match="no stage 'modle'; did you mean 'model'"):
        load_recipe(recipe_file, files, {"modle": {"steps": 3}})


def test_an_unknown_recipe_is_named() -> None:
    with pytest.raises(UsageError, match="no recipe 'quikstart'; did you mean 'quickstart'"):
        find_recipe("quikstart")
