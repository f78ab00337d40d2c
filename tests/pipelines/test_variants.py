"""A sweep and seeds: every combination of what varies, and once what does not."""

from pathlib import Path

import pytest

from pipelines.recipe import Recipe, load_recipe
from pipelines.variants import varied
from stages.errors import UsageError

Files = dict[str, list[str]]


@pytest.fixture
def load(recipe_file: Path, files: Files):
    def loaded(sweep: str = "", more: str = "") -> Recipe:
        recipe_file.write_text(f"{recipe_file.read_text()}\n{more}\n[sweep]\n{sweep}\n")
        return load_recipe(recipe_file, files, {})

    return loaded


def test_without_seeds_and_sweep_a_recipe_stays_as_it_is(load) -> None:
    recipe = load()
    assert varied(recipe).stages == recipe.stages


def test_files_called_as_stages_are_stay_files(recipe_file: Path) -> None:
    recipe_file.write_text(
        recipe_file.read_text().replace('"{train}"', '"model"').replace('train = "some text"', "")
    )
    loaded = load_recipe(recipe_file, {}, {})
    assert varied(loaded, seeds=2).stages["tokens"].references == {"train": "./model"}


def test_seeds_repeat_what_is_trained_and_all_that_reads_it(load) -> None:
    recipe = varied(load(), seeds=2)
    assert list(recipe.stages) == [
        *("tokens", "model[seed=0]", "model[seed=1]", "datastore[seed=0]", "datastore[seed=1]"),
        *("index[seed=0]", "index[seed=1]"),
    ]
    assert [recipe.config(f"model[seed={seed}]").seed for seed in (0, 1)] == [0, 1]
    assert recipe.stages["model[seed=1]"].source == "tokens"
    assert recipe.stages["index[seed=1]"].source == "datastore[seed=1]"


def test_seeds_go_upwards_from_the_recipes_own_and_all_models_share_them(load) -> None:
    other = '[stages.second]\ncommand = "train"\nfrom = "tokens"\npreset = "tiny"\nsettings = { seed = 7 }\n'
    recipe = load(more=other)
    made = varied(recipe, seeds=2)
    assert [made.config(f"second[seed={seed}]").seed for seed in (0, 1)] == [7, 8]
    assert "second[seed=7]" not in made.stages


def test_a_sweep_is_every_combination_of_its_values(load) -> None:
    recipe = varied(
        load('model.steps = [2, 3]\nmodel.model.width = [8, 16]\nindex.metric = ["l2", "ip"]'),
        seeds=2,
    )
    models = [name for name in recipe.stages if name.startswith("model[")]
    indexes = [name for name in recipe.stages if name.startswith("index[")]
    assert (len(models), len(indexes)) == (8, 16)
    name = "index[model.steps=3,model.model.width=8,index.metric=ip,seed=1]"
    assert recipe.config(name).metric == "ip"
    above = recipe.stages[name].source
    model = recipe.config(recipe.stages[above].source)
    assert (model.steps, model.model.width, model.model.layers, model.seed) == (3, 8, 1, 1)


@pytest.mark.parametrize(
    ("sweep", "seeds", "message"),
    [
        ("modle.steps = [1]", None, "has no stage 'modle'; did you mean 'model'"),
        ("model.stpes = [1]", None, "There is no setting 'stpes'; did you mean 'steps'"),
        ("model.steps = 5", None, r"sweep.model.steps: expected a list of values, not 5"),
        ("model.steps = []", None, "expected a list of values"),
        ("model = 5", None, "sweep.model: expected settings of the stage"),
        (f"model.steps = {list(range(1, 402))}", None, "more than 1,000 variants"),
        ("", 0, "--seeds must be 1 or more, not 0"),
    ],
)
def test_sweeps_that_make_no_sense_are_refused(
    load, sweep: str, seeds: int | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        varied(load(sweep), seeds)


def test_seeds_want_something_that_is_trained(tmp_path: Path, files: Files) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(
        '[inputs]\ntrain = "text"\n[stages.tokens]\ncommand = "tokenize"\nwith = { train = "{train}" }\n'
    )
    with pytest.raises(UsageError, match="--seeds"):
        varied(load_recipe(path, files, {}), seeds=2)


def test_a_sweep_of_very_many_combinations_is_refused_before_they_are_made(load) -> None:
    values = [round(0.001 * number, 3) for number in range(1, 400)]
    names = (
        "optimizer.lr",
        "optimizer.weight_decay",
        "clip_norm",
        "model.dropout",
        "schedule.final",
    )
    with pytest.raises(UsageError, match="1,000"):
        varied(load("".join(f"model.{name} = {values}\n" for name in names)))
