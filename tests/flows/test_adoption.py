"""A model from elsewhere in a recipe: its source alone, or with the RL that it has behind it."""

from pathlib import Path

import pytest

from flows import recipe as recipes
from flows.adoption import Brought, adopted
from flows.recipe import load
from flows.text2sql import Text2Sql
from stages.adopt.params import AdoptParams
from stages.declaration import SeededParams
from stages.errors import UsageError
from stages.teacher.params import TeacherParams

FOLDER = Path(recipes.__file__).parent / "recipes" / "text2sql"


def loaded(*settings: str, file: Path | None = None) -> Text2Sql:
    return load(Text2Sql, FOLDER, profile="cpu", file=file, settings=settings).recipe


def test_a_string_is_the_source():
    recipe = loaded("model=a/b", "teacher=c/d")
    assert (recipe.model, recipe.teacher) == ("a/b", "c/d")
    assert adopted("a/b") == AdoptParams(source="a/b")


def test_a_mapping_also_says_what_rl_is_behind_the_model(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("model: {source: a/b, rl_steps: 7}\nteacher: {source: c/d}\n")
    recipe = loaded(file=file)
    assert recipe.model == Brought(source="a/b", rl_steps=7)
    assert adopted(recipe.model) == AdoptParams(source="a/b", rl_steps=7)
    assert recipe.teacher == Brought(source="c/d")
    assert Text2Sql.model_validate(recipe.model_dump(mode="json")) == recipe


def test_without_a_source_the_teacher_is_trained():
    teacher = loaded("teacher.steps=9", "seed=3").teacher
    assert isinstance(teacher, TeacherParams)
    assert (teacher.steps, teacher.seed) == (9, 3)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("teacher.stepz=3", 'unknown key "teacher.stepz" in --set teacher.stepz=3: did you mean "teacher.st'),
        ("model.rl_steps=3", "model.source"),
        ("teacher=3", "teacher in --set teacher=3: input should be"),
    ],
)
def test_a_wrong_setting_is_one_sentence(setting, told):
    with pytest.raises(UsageError, match=r"^[^\n]+$") as refused:
        loaded(setting)
    assert told in str(refused.value)


def test_nothing_is_drawn_where_there_is_no_seed():
    assert not issubclass(AdoptParams, SeededParams)
    assert "seed" not in AdoptParams.model_fields
    assert "seed" not in type(Text2Sql().promote).model_fields
