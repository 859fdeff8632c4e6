"""A step's samples as one batch: whole groups, honest denominators, and what the sampler recorded."""

from dataclasses import replace

import pytest
import torch

from stages.domains.pool import Judgement
from stages.domains.protocol import Unscorable, Verdict
from stages.engines.params import Sampling
from stages.errors import GuardError
from stages.estimators.params import (
    KlPenalty,
)
from stages.rl.experience import experience, scored
from stages.rl.policy import open_policy
from stages.rl.worth import with_variance_P, worth

SAMPLING = Sampling(max_new_tokens=8)
UNSCORABLE = Judgement(Verdict(unscorable=Unscorable.WALL_CLOCK), None)
HEAD = 12


@pytest.fixture(scope="module")
def groups(sample, train_rows):
    found = sample(train_rows, 8, SAMPLING, seed=3, head=HEAD)
    assert 3 <= sum(with_variance_P(found)) < len(found)  # of both kinds
    return found


@pytest.fixture
def taken(rl_params):
    def make(groups, **changes):
        params = rl_params(**changes)
        return experience(groups, worth(groups, params), params, pad_id=0)

    return make


def test_only_informative_groups_are_in_the_batch_and_whole(groups, taken):
    found = taken(groups)
    varied = with_variance_P(groups)
    kept = [sample for place, group in enumerate(groups) if varied[place] for sample in group]
    kept = [sample for sample in kept if sample.scorable]
    assert len(found.batch.rows_B) == len(kept)
    lengths = found.batch.attention_BT.sum(1) + 1
    assert lengths.tolist() == [len(s.prompt_ids) + len(s.rollout.completion_ids) for s in kept]
    row = 0
    for place, group in enumerate(groups):
        if varied[place]:
            size = sum(sample.scorable for sample in group)
            assert found.advantages_BT[row : row + size].sum() == pytest.approx(0, abs=1e-5)
            row += size
    assert row == len(kept)


def test_denominators_count_groups_without_variance_too(groups, taken):
    scorable = [sample for group in groups for sample in group if sample.scorable]
    counts = taken(groups).counts
    assert counts.sequences == len(scorable)
    assert counts.tokens == sum(len(sample.rollout.completion_ids) for sample in scorable)


def test_token_ids_behaviour_and_head_arrive_as_they_were_sampled(groups, taken):
    found = taken(groups)
    record = found.behaviour
    varied = with_variance_P(groups)
    kept = [s for place, group in enumerate(groups) if varied[place] for s in group if s.scorable]
    for row, judged in enumerate(kept):
        mask = found.batch.mask_BT[row]
        assert found.batch.target_BT[row][mask].tolist() == judged.rollout.completion_ids
        assert record.logprobs_BT[row][mask].tolist() == pytest.approx(judged.rollout.logprobs)
        assert not record.logprobs_BT[row][~mask].any()
        assert record.head.ids_BTK[row][mask].tolist() == judged.rollout.head_ids
        assert torch.equal(record.head.logprobs_BTK[row][mask], torch.tensor(judged.rollout.head_logprobs))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"scored_version": 1}, "carry log-probs of other weights than drew them"),
        ({"weight_version": 9, "scored_version": 9}, "newer than the policy's 3"),
        (
            {"sampling": Sampling(max_new_tokens=8, temperature=0.7)},
            "score it at the temperature that sampled",
        ),
        ({"sampling": Sampling(max_new_tokens=8, top_k=20)}, "is not scored on that support: record"),
    ],
)
def test_what_a_rollout_records_about_its_sampler_is_held_against_the_loss(
    groups, rl_params, world, base, changes, sentence
):
    """Not what the recipe says that the sampler did."""
    params = rl_params()
    policy = open_policy(world.attempt(world.root / "unused", params, policy=base).context())
    lying = [[replace(s, rollout=replace(s.rollout, head_ids=None, **changes)) for s in g] for g in groups]
    taken = experience(lying, worth(lying, params), params, pad_id=0)
    with pytest.raises(GuardError, match=sentence):
        scored(taken, policy, params, version=3)


def test_a_batch_that_was_sampled_in_two_ways_is_refused(groups, rl_params):
    params, hot = rl_params(), Sampling(max_new_tokens=8, temperature=1.3)
    mixed = [[replace(s, rollout=replace(s.rollout, sampling=hot)) for s in g] for g in groups[:4]] + groups[
        4:
    ]
    with pytest.raises(GuardError, match="sampled in 2 different ways"):
        experience(mixed, worth(mixed, params), params, pad_id=0)


def test_the_reference_is_asked_a_micro_batch_at_a_time_and_at_the_sampling_temperature(
    groups, rl_params, world, teacher
):
    hot = Sampling(max_new_tokens=8, temperature=1.3)
    params = rl_params(kl=KlPenalty(coefficient=0.1), sampling=hot)
    runtime = {"micro_batch_rows": 7}
    policy = open_policy(world.attempt(world.root / "unused", params, runtime, policy=teacher).context())
    rows = []
    hook = policy.reference.model.base_model.register_forward_hook(
        lambda _m, _a, out: rows.append(len(out[0]))
    )
    heated = [[replace(s, rollout=replace(s.rollout, sampling=hot)) for s in g] for g in groups]
    taken = scored(experience(heated, worth(heated, params), params, pad_id=0), policy, params, version=0)
    hook.remove()
    assert max(rows) == 7 and sum(rows) == len(taken.batch.rows_B)
    logits = (
        policy.reference.model(taken.batch.input_BT, attention_mask=taken.batch.attention_BT).logits / 1.3
    )
    expected = logits.log_softmax(-1).gather(-1, taken.batch.target_BT.unsqueeze(-1)).squeeze(-1)
    mask = taken.batch.mask_BT
    torch.testing.assert_close(taken.reference_BT[mask], expected[mask].detach(), rtol=0, atol=1e-5)
