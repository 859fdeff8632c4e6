"""The teacher speaks the student's tokens, and not after it was sent away."""

import shutil

import pytest
import torch

from stages.engines.batch import completion_batch
from stages.errors import GuardError
from stages.opd.teacher import Teacher, require_same_tokenizer
from stages.prompts.tokenizer import train_tokenizer

BATCH = completion_batch([[2, 40, 3], [2, 3]], [[50, 51, 1], [52]], 0)


def test_it_repeats_itself_and_needs_no_gradient(world, teacher):
    model = Teacher(teacher, 32)
    places = torch.arange(10)
    logprobs = [model.distribution(BATCH, 1.0).logprobs_NV(places) for _ in range(3)]
    assert logprobs[0].shape == (10, len(world.tokenizer)) and not logprobs[0].requires_grad
    assert torch.equal(logprobs[0], logprobs[2])


@pytest.mark.oracle("6.3")
def test_a_retired_teacher_refuses(teacher):
    model = Teacher(teacher, 32)
    model.distribution(BATCH, 1.0)
    model.retire()
    with pytest.raises(GuardError, match="after the switch"):
        model.distribution(BATCH, 1.0)
    assert model.model is None


def test_another_tokenizer_is_refused_by_what_differs(world, base, tmp_path):
    words = ["how", "many", "tracks"] * 3
    other = world.random_model("other-words", seed=1, tokenizer=train_tokenizer(words, 320))
    with pytest.raises(GuardError, match="differ in tokenizer_digest"):
        require_same_tokenizer(base, other)
    template = tmp_path / "template"
    shutil.copytree(base, template)
    (template / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    with pytest.raises(GuardError, match="chat_template_digest"):
        require_same_tokenizer(base, template)


def test_a_larger_model_of_the_same_tokenizer_is_welcome(base, teacher):
    assert require_same_tokenizer(base, teacher) is None
