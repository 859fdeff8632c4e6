"""What may be trained by RL."""

import pytest
from transformers import AutoModelForCausalLM

from stages.errors import GuardError
from stages.rl.policy import open_policy
from stages.rl.stage import run


def test_a_mixture_of_experts_is_refused_before_anything_is_sampled(world, mixture, rl_params, tmp_path):
    attempt = world.attempt(tmp_path, rl_params(), policy=mixture)
    with pytest.raises(GuardError, match=r"mixture of experts \(mixtral\).*train a dense model"):
        run(attempt.context())
    assert not (tmp_path / "work" / "rollouts").exists()


def test_a_dense_policy_is_opened(world, rl_params, tmp_path):
    dense = world.random_model("dense policy", seed=1)
    policy = open_policy(world.attempt(tmp_path, rl_params(), policy=dense).context())
    assert policy.trainer.weights().keys() == AutoModelForCausalLM.from_pretrained(dense).state_dict().keys()
