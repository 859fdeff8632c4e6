"""Rollouts: their log-probs are the sampling distribution's, whatever the batching."""

from typing import Any

import pytest
import torch
import transformers

from data_contracts.values import StopReason
from stages.engines.agreement import recomputed_logprobs_BT
from stages.engines.batch import align_to_targets, completion_batch
from stages.engines.frozen import FrozenModel
from stages.engines.hf import HfEngine, draw, open_engine, sampling_logprobs
from stages.engines.params import EngineParams, Sampling
from stages.errors import GuardError, PosttrainError
from stages.spec import Runtime

PROMPTS = [[2, 40, 41, 3], [2, 50, 3], [2, 40, 60, 61, 62, 3]]


def independent_logprobs(
    model: Any, prompt: list[int], completion: list[int], temperature: float
) -> list[float]:
    """One full forward pass over one unpadded row."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + completion]), use_cache=False).logits[0]
    logprobs = (logits / temperature).log_softmax(-1)
    return [float(logprobs[len(prompt) + place - 1, token]) for place, token in enumerate(completion)]


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.3])
def test_recorded_logprobs_are_those_of_a_fresh_forward_pass(model: Any, temperature: float) -> None:
    engine = HfEngine(model, batch_rows=6)
    sampling = Sampling(temperature=temperature, max_new_tokens=12)
    for rollout in engine.generate(PROMPTS, 4, sampling, seed=1):
        prompt = PROMPTS[rollout.prompt_index]
        expected = independent_logprobs(model, prompt, rollout.completion_ids, temperature)
        assert rollout.logprobs == pytest.approx(expected, abs=1e-5)


def test_batching_does_not_choose_what_is_sampled(model: Any) -> None:
    sampling = Sampling(max_new_tokens=10)
    wide = HfEngine(model, batch_rows=1000).generate(PROMPTS, 5, sampling, seed=7)
    narrow = HfEngine(model, batch_rows=1).generate(PROMPTS, 5, sampling, seed=7)
    assert [r.completion_ids for r in wide] == [r.completion_ids for r in narrow]
    assert [r.prompt_index for r in wide] == [0] * 5 + [1] * 5 + [2] * 5


def test_seed_decides_the_samples(model: Any) -> None:
    engine = HfEngine(model, batch_rows=64)
    sampling = Sampling(max_new_tokens=10)
    first = [r.completion_ids for r in engine.generate(PROMPTS, 3, sampling, seed=1)]
    assert first == [r.completion_ids for r in engine.generate(PROMPTS, 3, sampling, seed=1)]
    assert first != [r.completion_ids for r in engine.generate(PROMPTS, 3, sampling, seed=2)]


def test_finished_rows_end_with_eos_and_truncated_ones_do_not(model: Any) -> None:
    with torch.no_grad():  # make EOS likely, so that rows finish at different steps and leave the batch
        model.model.embed_tokens.weight[model.generation_config.eos_token_id] *= 4
        model.model.norm.weight.fill_(3.0)
    rollouts = HfEngine(model, batch_rows=64).generate(PROMPTS, 40, Sampling(max_new_tokens=6), seed=0)
    eos = model.generation_config.eos_token_id
    lengths = {len(rollout.completion_ids) for rollout in rollouts}
    assert len(lengths) > 1
    for rollout in rollouts:
        ended = rollout.stop_reason is StopReason.EOS
        assert ended == (rollout.completion_ids[-1] == eos)
        assert eos not in rollout.completion_ids[:-1]
        assert ended or len(rollout.completion_ids) == 6
        expected = independent_logprobs(model, PROMPTS[rollout.prompt_index], rollout.completion_ids, 1.0)
        assert rollout.logprobs == pytest.approx(expected, abs=1e-5)


def test_draw_inverts_the_distribution_function() -> None:
    logits = torch.tensor([0.1, 0.2, 0.3, 0.4]).log().repeat(1000, 1)
    uniform = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    token, logprob = draw(sampling_logprobs(logits, Sampling()), uniform)
    assert torch.bincount(token).tolist() == [100, 200, 300, 400]
    assert logprob.exp().tolist() == pytest.approx((0.1 * (token + 1)).tolist(), rel=1e-5)


def test_top_k_and_top_p_renormalise_the_recorded_logprob() -> None:
    logits = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log().repeat(200, 1)
    uniform = torch.rand(200, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    token, logprob = draw(sampling_logprobs(logits, Sampling(top_k=2)), uniform)
    assert set(token.tolist()) == {2, 3}
    assert logprob.exp()[token == 3].tolist() == pytest.approx([4 / 7] * int((token == 3).sum()), rel=1e-5)
    token, logprob = draw(sampling_logprobs(logits, Sampling(top_p=0.65)), uniform)  # 0.4 and 0.3 reach it
    assert set(token.tolist()) == {2, 3}


def test_new_weights_are_what_samples_next(model: Any, tokenizer: Any) -> None:
    from stages.engines.checkpoint import new_llama
    from stages.engines.params import ModelShape

    shape = ModelShape(hidden=32, layers=2, heads=2, intermediate=48)
    trained = new_llama(shape, tokenizer, seed=99)
    engine = HfEngine(model, batch_rows=64)
    engine.generate(PROMPTS, 2, Sampling(max_new_tokens=8), seed=5)  # whatever it cached must not survive
    engine.load_weights(trained.state_dict(), version=4)
    for rollout in engine.generate(PROMPTS, 2, Sampling(max_new_tokens=8), seed=5):
        expected = independent_logprobs(trained, PROMPTS[rollout.prompt_index], rollout.completion_ids, 1.0)
        assert rollout.logprobs == pytest.approx(expected, abs=1e-5)
        assert rollout.weight_version == 4


def test_weights_of_another_model_are_refused(model: Any) -> None:
    tensors = dict(model.state_dict())
    tensors.pop("model.norm.weight")
    with pytest.raises(PosttrainError, match=r"model\.norm\.weight"):
        HfEngine(model, batch_rows=4).load_weights(tensors, version=1)


def test_the_head_is_of_the_distribution_that_sampled(base):
    """Best first, at the sampling temperature, the drawn token's own log-prob among them where it is one."""
    engine, sampling = (
        open_engine(base, EngineParams(), Runtime(threads=1)),
        Sampling(temperature=1.3, max_new_tokens=6),
    )
    prompts = [[2, 40, 3], [2, 41, 42, 3]]
    plain = engine.generate(prompts, 3, sampling, seed=5)
    with_head = engine.generate(prompts, 3, sampling, seed=5, head=7)
    assert [r.completion_ids for r in plain] == [r.completion_ids for r in with_head]
    assert all(r.head_ids is None and r.head_logprobs is None for r in plain)
    for rollout in with_head:
        prompt = prompts[rollout.prompt_index]
        logits = engine.model(torch.tensor([prompt + rollout.completion_ids])).logits[0, len(prompt) - 1 : -1]
        best = (logits / 1.3).log_softmax(-1).topk(7)
        torch.testing.assert_close(torch.tensor(rollout.head_logprobs), best.values, rtol=0, atol=1e-5)
        for position, token in enumerate(rollout.completion_ids):
            if token in rollout.head_ids[position]:
                place = rollout.head_ids[position].index(token)
                assert rollout.head_logprobs[position][place] == pytest.approx(
                    rollout.logprobs[position], abs=1e-6
                )


def test_the_distribution_of_the_loaded_weights_is_what_sampled(base):
    engine = open_engine(base, EngineParams(), Runtime(threads=1))
    prompts = [[2, 40, 3], [2, 41, 42, 3]]
    rollouts = engine.generate(prompts, 2, Sampling(temperature=0.7, max_new_tokens=6), seed=1)
    batch = completion_batch(
        [prompts[r.prompt_index] for r in rollouts], [r.completion_ids for r in rollouts], 0
    )
    found = recomputed_logprobs_BT(engine.distribution(batch, 0.7), batch)
    recorded = align_to_targets(batch, [r.logprobs for r in rollouts])
    torch.testing.assert_close(found, recorded, rtol=0, atol=1e-5)
    assert not found[~batch.mask_BT].any()


@pytest.mark.parametrize(
    ("family", "scale"), [("Granite", {"logits_scaling": 7.0}), ("Cohere", {"logit_scale": 0.2})]
)
def test_a_model_that_changes_its_logits_cannot_be_asked_a_block_at_a_time(family, scale, tmp_path):
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = getattr(transformers, f"{family}Config")(
        vocab_size=64,
        num_key_value_heads=2,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
        **shape,
        **scale,
    )
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    engine = HfEngine(model, batch_rows=4)
    with pytest.raises(GuardError, match=r"scales or caps its logits.*set centering.kind to head"):
        engine.distribution(completion_batch([[2, 40]], [[3, 1]], 0), 1.0)
    model.save_pretrained(tmp_path)
    with pytest.raises(GuardError, match="take another teacher"):
        FrozenModel(tmp_path, micro_batch_rows=4)
