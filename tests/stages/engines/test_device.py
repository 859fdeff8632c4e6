"""One place decides where models live, and all that a model is given lies there."""

from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from stages.engines import hf, torch_trainer
from stages.engines.batch import align_to_targets, completion_batch
from stages.engines.device import device
from stages.engines.hf import HfEngine
from stages.engines.params import OptimizerParams, Sampling
from stages.engines.supervised import cross_entropy
from stages.engines.torch_trainer import TorchTrainer
from stages.spec import Runtime

PROMPTS, ANSWERS = [[5, 6, 7], [8, 9]], [[10, 11, 1], [12]]


@pytest.mark.parametrize(("there", "kind"), [(False, "cpu"), (True, "cuda")])
def test_models_live_on_the_gpu_if_torch_sees_one(monkeypatch: pytest.MonkeyPatch, there, kind) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    assert device() == torch.device(kind)


def test_a_batch_moves_whole() -> None:
    moved = completion_batch(PROMPTS, ANSWERS, 0).to(torch.device("meta"))
    assert {tensor.device.type for tensor in vars(moved).values()} == {"meta"}


def test_a_micro_batch_takes_its_part_of_values_of_the_whole() -> None:
    batch = completion_batch(PROMPTS, ANSWERS, 0)
    values_BT = align_to_targets(batch, [[0.1, 0.2, 0.3], [0.4]])
    short, long = batch.micro_batches(1)
    assert torch.equal(short.take(values_BT), torch.tensor([[0.0, 0.4]]))
    assert torch.equal(long.take(values_BT), values_BT[:1])
    assert torch.equal(short.take_rows(torch.tensor([1.0, 2.0])), torch.tensor([2.0]))


def test_a_model_is_moved_and_all_that_it_is_given_is_where_it_is(
    model: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[Any] = []
    seen: list[torch.device] = []
    monkeypatch.setattr(hf, "device", lambda: moved.append("engine") or device())
    monkeypatch.setattr(torch_trainer, "device", lambda: moved.append("trainer") or device())

    def look(_: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        seen.extend(value.device for value in [*positional, *named.values()] if torch.is_tensor(value))

    model.register_forward_pre_hook(look, with_kwargs=True)
    engine = HfEngine(model, batch_rows=4)
    rollouts = engine.generate(PROMPTS, 2, Sampling(max_new_tokens=3), seed=0)
    assert [rollout.prompt_index for rollout in rollouts] == [0, 0, 1, 1]
    batch = completion_batch(PROMPTS, ANSWERS, 0)
    trainer = TorchTrainer(model, OptimizerParams(), 1, Runtime())
    trainer.step([(batch, cross_entropy(batch, []))])
    assert moved == ["engine", "trainer"]
    assert len(seen) > 6 and set(seen) == {model.device}
