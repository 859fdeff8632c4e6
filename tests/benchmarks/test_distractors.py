"""The run under a stale sampler: a reward of the first token only, and drift measured as it is defined."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.distractors.domain import (
    AFTER_RIGHT,
    AFTER_WRONG,
    DIGITS,
    DISTRACTORS,
    LETTERS,
    RIGHT,
    Distractors,
    completion,
)
from benchmarks.distractors.drift import Start
from benchmarks.distractors.flow import ARMS, CI, SAMPLING, stale_sampler
from benchmarks.distractors.outcome import Outcome, last_metrics
from benchmarks.stale_sampler import lines, spread
from data_contracts.checkpoint import TrainingRecord
from stages.domains.protocol import Split
from stages.engines.batch import completion_batch
from stages.engines.chat import answer_ids, open_tokenizer, prompt_ids
from stages.engines.checkpoint import export, new_llama
from stages.engines.params import ModelShape, OptimizerParams
from stages.engines.supervised import cross_entropy
from stages.engines.torch_trainer import TorchTrainer
from stages.estimators.params import FullVocabulary
from stages.prompts.stage import write_prompts
from stages.prompts.tokenizer import train_tokenizer
from stages.spec import Runtime
from tasks.planning import PlanningSession, plan
from tasks.store.home import Home

DOMAIN = Distractors(Path())
ITEMS = DOMAIN.prompts(Split.TRAIN)


def test_the_reward_is_of_the_letter_alone() -> None:
    ends = ["", "0", "77777777777777", DIGITS[::-1]]
    for letter in LETTERS:
        verdicts = DOMAIN.verify(ITEMS[:4], [letter + end for end in ends])
        assert [verdict.reward for verdict in verdicts] == [float(letter == RIGHT)] * 4


@pytest.mark.parametrize(("letter", "weights"), [(RIGHT, AFTER_RIGHT), ("c", AFTER_WRONG)])
def test_digits_are_drawn_in_the_proportions_of_their_letter(letter: str, weights: tuple[float, ...]) -> None:
    rng = random.Random(0)
    texts = [completion(letter, rng) for _ in range(2000)]
    assert {(text[0], len(text)) for text in texts} == {(letter, 1 + DISTRACTORS)}
    seen = Counter("".join(text[1:] for text in texts))
    for digit, weight in zip(DIGITS, weights, strict=True):
        share = weight / sum(weights)
        deviation = (share * (1 - share) / (2000 * DISTRACTORS)) ** 0.5
        assert abs(seen[digit] / (2000 * DISTRACTORS) - share) < 5 * deviation


def test_every_completion_is_a_token_a_character_and_its_end() -> None:
    tokenizer = train_tokenizer([item.text for item in ITEMS] + ["a0123", "b7654"] * 9, 300)
    assert len(answer_ids(tokenizer, completion("h", random.Random(0)))) == DISTRACTORS + 2
    assert SAMPLING.max_new_tokens > DISTRACTORS + 2, "a cut completion is wrong whatever its letter"


def test_arms_differ_in_the_gradient_only(tmp_path: Path) -> None:
    """And the flow's wiring holds: a plan of it has a node for each arm and seed."""
    session = PlanningSession(Home(tmp_path), runtime=Runtime(), flow="stale_sampler", run_id="")
    nodes = [line.node for line in plan(session, lambda: stale_sampler(CI))]
    assert nodes == ["prompts", "base", "archive", "rl.uncentered-1.0", "rl.centered-1.0"]
    for cap in ("1", "2"):
        without, centered = dict(ARMS[f"uncentered-{cap}"]), dict(ARMS[f"centered-{cap}"])
        assert without.pop("acknowledge_prefix_bias") is True
        assert centered.pop("centering") == FullVocabulary()
        assert without == centered
        assert without["loss"].ratio.regulariser.high == float(cap)


def test_metrics_are_means_of_the_last_steps_that_have_them(tmp_path: Path) -> None:
    steps = [{"step": step, "k3": step if step % 2 else None, "cut": 0.5} for step in range(12)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    found = last_metrics(tmp_path / "metrics.jsonl")
    assert (found["k3"], found["cut"]) == (7.0, 0.5)  # steps 2 to 11, the odd ones


def test_a_table_shows_the_spread_over_seeds() -> None:
    assert spread([1.0, 2.0, 3.0]) == "2.000 ± 1.000"
    assert spread([2.0]) == "2.000"
    runs = [Outcome(seed, 0.1 * seed, 0.0, 0.0, 0.5, 0.5, 0.0, 0.0, 0.0) for seed in (1, 2, 3)]
    header, row = lines({"centered": runs})
    assert header.split()[:3] == ["KL", "after", "right"]
    assert row.split()[:4] == ["centered", "0.200", "±", "0.100"]


class Trained:
    """A model that has half learnt the domain, and another one after a few steps more."""

    def __init__(self, root: Path) -> None:
        rng = random.Random(0)
        tokenizer = train_tokenizer([item.text for item in ITEMS] + ["a0123", "b7654"] * 9, 300)
        shape = ModelShape(hidden=32, layers=1, heads=2, intermediate=48, max_positions=64)
        model = new_llama(shape, tokenizer, 0)
        trainer = TorchTrainer(
            model, OptimizerParams(learning_rate=2e-2, warmup_steps=5), 40, Runtime(threads=1)
        )
        for step in range(40):
            rows = [(item, right) for item in ITEMS for right in (True, True, False)]
            answers = [completion(RIGHT if right else "c", rng) for _, right in rows]
            batch = completion_batch(
                [prompt_ids(tokenizer, DOMAIN.messages(item)) for item, _ in rows],
                [answer_ids(tokenizer, answer) for answer in answers],
                tokenizer.pad_token_id,
            )
            trainer.step([(batch, cross_entropy(batch, []))])
            if step == 29:
                export(model, tokenizer, TrainingRecord(), root / "start")
        export(model, tokenizer, TrainingRecord(), root / "end")
        write_prompts(root / "prompts", DOMAIN, ITEMS)
        self.start, self.end, self.prompts = root / "start", root / "end", root / "prompts"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("trained"))


def test_drift_is_the_mean_kl_of_the_positions_behind_the_letter(trained: Trained) -> None:
    """Against row by row, token by token, without batches or padding."""
    start = Start(trained.start, trained.prompts, SAMPLING)
    before, after = (
        AutoModelForCausalLM.from_pretrained(path).eval() for path in (trained.start, trained.end)
    )
    tokenizer = open_tokenizer(trained.start)
    kls: dict[bool, list[float]] = {True: [], False: []}
    chance = []
    for row in range(0, len(start.batch.rows_B), 16):
        length = int(start.batch.attention_BT[row].sum())
        ids = torch.cat([start.batch.input_BT[row, :1], start.batch.target_BT[row, :length]])
        first = ids.tolist().index(tokenizer.convert_tokens_to_ids("<|assistant|>")) + 1
        with torch.no_grad():
            p_TV, q_TV = (model(ids[None]).logits[0].double().softmax(-1) for model in (after, before))
        right = tokenizer.decode(ids[first]) == RIGHT
        for place in range(first, min(first + DISTRACTORS, len(ids) - 1)):
            p_V, q_V = p_TV[place], q_TV[place]
            kls[right].append(float((p_V * (p_V / q_V).log()).sum()))
        chance.append(float(p_TV[first - 1, tokenizer.encode(RIGHT)[0]]))
    every_16th = torch.zeros_like(start.right_B)
    every_16th[::16] = True
    start.right_B, start.distractor_BT = start.right_B & every_16th, start.distractor_BT & every_16th[:, None]
    start.first_BT = start.first_BT & every_16th[:, None]
    moved = start.moved(trained.end)
    assert moved.kl == pytest.approx(
        sum(sum(kl) for kl in kls.values()) / sum(map(len, kls.values())), rel=1e-4
    )
    assert moved.kl_after_right == pytest.approx(sum(kls[True]) / len(kls[True]), rel=1e-4)
    assert moved.kl_after_wrong == pytest.approx(sum(kls[False]) / len(kls[False]), rel=1e-4)
    assert moved.right == pytest.approx(sum(chance) / len(chance), rel=1e-4)
    assert moved.kl > 0.01


def test_what_has_not_moved_has_no_drift(trained: Trained) -> None:
    moved = Start(trained.start, trained.prompts, SAMPLING).moved(trained.start)
    assert (moved.kl, moved.kl_after_right, moved.kl_after_wrong) == (0.0, 0.0, 0.0)
