"""What may be trained by RL."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, MixtralConfig, MixtralForCausalLM

from data_contracts.checkpoint import TrainingRecord
from stages.engines.checkpoint import export
from stages.errors import GuardError
from stages.rl.policy import open_policy
from stages.rl.stage import run


@pytest.fixture(scope="session")
def mixture(world) -> Path:
    torch.manual_seed(0)
    config = MixtralConfig(
        vocab_size=len(world.tokenizer),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        num_local_experts=4,
        num_experts_per_tok=1,
        bos_token_id=None,
        eos_token_id=world.tokenizer.eos_token_id,
        pad_token_id=world.tokenizer.pad_token_id,
    )
    export(MixtralForCausalLM(config), world.tokenizer, TrainingRecord(), world.root / "mixture")
    return world.root / "mixture"


def test_a_mixture_of_experts_is_refused_before_anything_is_sampled(world, mixture, rl_params, tmp_path):
    attempt = world.attempt(tmp_path, rl_params(), policy=mixture)
    with pytest.raises(GuardError, match=r"mixture of experts \(mixtral\).*train a dense model"):
        run(attempt.context())
    assert not (tmp_path / "work" / "rollouts").exists()


def test_a_dense_policy_is_opened(world, rl_params, tmp_path):
    dense = world.random_model("dense policy", seed=1)
    policy = open_policy(world.attempt(tmp_path, rl_params(), policy=dense).context())
    assert policy.trainer.weights().keys() == AutoModelForCausalLM.from_pretrained(dense).state_dict().keys()
