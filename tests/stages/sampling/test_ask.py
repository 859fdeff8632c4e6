"""One question to one checkpoint: a prompt of the domain is judged, any other is only sampled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from letters_domain import HELD_OUT

from stages.engines.params import Sampling
from stages.errors import ExitCode
from stages.sampling.ask import Question, ask
from stages.spec import Runtime

PROJECT = Path(__file__).parents[3]


@pytest.fixture
def question(world, base):
    def about(text: str) -> Question:
        return Question(
            checkpoint=base,
            prompts=world.prompts,
            domain=world.domain,
            text=text,
            n=8,
            sampling=Sampling(max_new_tokens=8),
            runtime=Runtime(threads=1),
        )

    return about


def test_a_prompt_of_the_domain_gets_verdicts(question):
    answer = ask(question(f"say {HELD_OUT[0]}"))
    assert answer.prompt_id == f"test-values/{HELD_OUT[0]}/"
    assert len(answer.samples) == 8
    assert all((sample.reward is None) != (sample.unscorable is None) for sample in answer.samples)
    assert all(sample.logprob <= 0 and sample.rows == [] for sample in answer.samples)


def test_any_other_question_is_sampled_without_a_verdict(question):
    answer = ask(question("say xyz"))
    assert answer.prompt_id is None
    assert [sample.reward for sample in answer.samples] == [None] * 8
    assert answer.samples[0].text != ""


def test_the_process_answers_in_json_and_refuses_in_one_sentence(question, tmp_path):
    def process(asked: Question) -> tuple[int, dict]:
        paths = [str(PROJECT), *(path for path in sys.path if path.endswith("letters"))]
        done = subprocess.run(
            [sys.executable, "-m", "stages.sampling.ask"],
            input=asked.model_dump_json(),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, json.loads(done.stdout)

    asked = question(f"say {HELD_OUT[0]}")
    assert process(asked) == (ExitCode.OK, json.loads(ask(asked).model_dump_json()))
    code, said = process(asked.model_copy(update={"domain": tmp_path}))
    assert code == ExitCode.USAGE and "domain.json" in said["error"]
