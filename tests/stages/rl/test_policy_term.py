"""The policy's term of a step: whole groups, no unscorable sample, the same for every split of the batch."""

from dataclasses import replace

import pytest
import torch

from stages.domains.pool import Judgement
from stages.domains.protocol import Unscorable, Verdict
from stages.engines.hf import open_engine
from stages.engines.params import EngineParams, OptimizerParams, Sampling, ValueHeadParams
from stages.engines.torch_trainer import TorchTrainer, open_trainer
from stages.errors import GuardError, PosttrainError
from stages.estimators.params import (
    Cispo,
    Clip,
    DrGrpo,
    FixedLength,
    FullVocabulary,
    Gspo,
    Head,
    KlPenalty,
    Level,
    Mask,
    PolicyGradient,
    PpoClip,
    Ratio,
    Rloo,
    SequenceMean,
    TokenMean,
    Truncate,
    Uncorrected,
)
from stages.rl.elites import ReplayElite
from stages.rl.experience import experience
from stages.rl.policy_term import PolicyTerm
from stages.rl.replay_term import replay_term
from stages.rl.worth import with_variance_P, worth
from stages.spec import Runtime

SAMPLING = Sampling(max_new_tokens=8)
UNSCORABLE = Judgement(Verdict(unscorable=Unscorable.WALL_CLOCK), None)
HEAD = 12
ESTIMATORS = {
    "ppo": {},
    "exact": {"loss": PolicyGradient()},
    "sequence": {"loss": PolicyGradient(ratio=Ratio(level=Level.SEQUENCE, veto_below=0.05))},
    "truncated": {
        "loss": PolicyGradient(ratio=Ratio(regulariser=Truncate(high=1.1))),
        "centering": FullVocabulary(),
        "advantage": Rloo(),
    },
    "masked, head": {
        "loss": PolicyGradient(ratio=Ratio(regulariser=Mask(low=0.8, high=1.2))),
        "centering": Head(k=HEAD),
        "advantage": DrGrpo(),
        "aggregation": FixedLength(length=8),
    },
    "uncorrected": {
        "loss": PolicyGradient(ratio=Ratio(regulariser=Uncorrected())),
        "centering": Head(k=HEAD),
        "advantage": Rloo(),
    },
    "cispo": {"loss": Cispo(), "acknowledge_prefix_bias": True, "kl": KlPenalty(coefficient=0.1)},
    "gspo": {
        "loss": Gspo(correction=Ratio(level=Level.GEOMETRIC, regulariser=Clip())),
        "aggregation": SequenceMean(),
    },
}


@pytest.fixture(scope="module")
def groups(sample, train_rows):
    found = sample(train_rows, 8, SAMPLING, seed=3, head=HEAD)
    assert 3 <= sum(with_variance_P(found)) < len(found)  # of both kinds
    return found


@pytest.fixture(scope="module")
def trainer(base) -> TorchTrainer:
    return open_trainer(base, OptimizerParams(), 1, Runtime(threads=1))


@pytest.fixture(scope="module")
def moved(base) -> TorchTrainer:
    """The policy some updates after the weights that sampled."""
    trainer = open_trainer(base, OptimizerParams(), 1, Runtime(threads=1))
    drawn = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter += 0.3 * parameter.std() * torch.randn(parameter.shape, generator=drawn)
    return trainer


@pytest.fixture(scope="module")
def engine(base):
    return open_engine(base, EngineParams(), Runtime(threads=1))


@pytest.fixture
def term(engine, rl_params):
    def make(groups, version=1, **changes):
        params = rl_params(**changes)
        taken = experience(groups, worth(groups, params), params, pad_id=0)
        if params.kl:
            taken = replace(taken, reference_BT=taken.behaviour.logprobs_BT)
        return PolicyTerm(taken, params, engine, version, first_update=True)

    return make


def gradient(trainer, terms, micro_rows=1000):
    trainer.model.zero_grad(set_to_none=True)
    for each in terms:
        for micro in each.batch.micro_batches(micro_rows):
            each.loss(trainer.forward(micro), micro).backward()
    return torch.cat([p.grad.flatten() for p in trainer.model.parameters()])


ELITES = [
    ReplayElite("a", "s1", [2, 40, 3], [50, 1], [-0.5, -0.1], 1.0),
    ReplayElite("a", "s2", [2, 40, 3], [51, 52, 53, 1], [-0.5, -1.0, -0.2, -0.1], 0.8),
    ReplayElite("b", "s1", [2, 41, 42, 3], [54, 1], [-0.5, -0.1], 1.0),
    ReplayElite("a", "s3", [2, 40, 3], [55, 56, 1], [-0.5, -0.1, -0.1], 1.2),
    ReplayElite("b", "s2", [2, 41, 42, 3], [57, 58, 1], [-0.5, -0.1, -0.3], 1.0),
]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_step_does_not_depend_on_micro_batches_or_order(groups, moved, term, rl_params, estimator):
    choices = ESTIMATORS[estimator]
    replay = rl_params(coefficient=0.3).replay

    def both(ordered, elites):
        return [term(ordered, **choices), replay_term(elites, replay, 0)]

    whole = gradient(moved, both(groups, ELITES))
    assert whole.abs().max() > 1e-3
    for micro_rows in (1, 7):
        split = gradient(moved, both(groups, ELITES), micro_rows)
        assert torch.allclose(split, whole, rtol=0, atol=2e-6)
    other_order = gradient(moved, both(groups[::-1], ELITES[::-1]), 5)
    assert torch.allclose(other_order, whole, rtol=0, atol=2e-6)


@pytest.mark.parametrize("estimator", ["ppo", "truncated", "masked, head"])
def test_metrics_do_not_depend_on_micro_batches(groups, moved, term, estimator):
    found = []
    for micro_rows in (1000, 2):
        policy = term(groups, **ESTIMATORS[estimator])
        gradient(moved, [policy], micro_rows)
        found.append(policy.metrics())
    for name, value in found[0].items():
        assert found[1][name] == pytest.approx(value, abs=2e-5), name
    assert found[0]["k3"] > 1e-3 and found[0]["ess"] < 0.999 and found[0]["staleness"] == 1.0


@pytest.mark.oracle("3.4")
@pytest.mark.parametrize("estimator", [name for name in ESTIMATORS if name not in ("sequence", "gspo")])
def test_right_after_sampling_every_token_level_estimator_is_reinforce(groups, trainer, term, estimator):
    """p == q: ratios are 1 within float32, centering and clipping change nothing, a KL to itself neither."""
    choices = dict(ESTIMATORS[estimator])
    plain = gradient(
        trainer,
        [
            term(
                groups,
                version=0,
                loss=PpoClip(),
                advantage=choices.get("advantage", {}),
                aggregation=choices.get("aggregation", {}),
            )
        ],
    )
    own = gradient(trainer, [term(groups, version=0, **choices)])
    assert torch.allclose(own, plain, rtol=0, atol=5e-5 * float(plain.abs().max()) + 1e-6)


def test_both_centerings_agree_when_the_head_is_the_vocabulary(
    groups, moved, term, sample, train_rows, world
):
    ratio = Ratio(regulariser=Truncate(high=1.1))
    whole = sample(train_rows, 8, SAMPLING, seed=3, head=len(world.tokenizer))
    found = [
        gradient(
            moved,
            [term(whole, loss=PolicyGradient(ratio=ratio), centering=centering, advantage=Rloo())],
        )
        for centering in (FullVocabulary(), Head(k=len(world.tokenizer)))
    ]
    uncentred = gradient(moved, [term(whole, loss=PolicyGradient(ratio=ratio), acknowledge_prefix_bias=True)])
    assert torch.allclose(*found, rtol=0, atol=2e-6)
    assert (found[0] - uncentred).abs().max() > 1e-3


def test_with_the_exact_ratio_there_is_nothing_to_centre(groups, moved, term):
    """sum_v q_v (p_v / q_v) grad log p_v = 0, however far the policy has moved."""
    centred, plain = (
        gradient(moved, [term(groups, loss=PolicyGradient(), centering=centering, advantage=Rloo())])
        for centering in (FullVocabulary(), None)
    )
    assert torch.allclose(centred, plain, rtol=0, atol=2e-6) and plain.abs().max() > 1e-3


def test_a_penalty_is_about_every_sample_and_advantages_about_groups_that_vary(groups, term):
    with_penalty, without = term(groups, kl=KlPenalty(coefficient=0.1)), term(groups)
    scorable = sum(sample.scorable for group in groups for sample in group)
    assert len(with_penalty.batch.rows_B) == scorable > len(without.batch.rows_B)
    assert int((with_penalty.taken.advantages_BT != 0).sum()) == int((without.taken.advantages_BT != 0).sum())


def test_an_unscorable_sample_leaves_the_group_and_the_loss(groups, trainer, term):
    """The step is that of groups in which it was never drawn."""
    group = groups[with_variance_P(groups).index(True)]
    wrong = next(i for i, sample in enumerate(group) if sample.scorable and not sample.correct)
    marked = [replace(s, judgement=UNSCORABLE) if i == wrong else s for i, s in enumerate(group)]
    without = [replace(s, sample=i) for i, s in enumerate(s for j, s in enumerate(group) if j != wrong)]
    terms = [term([each]) for each in (marked, without)]
    advantages = [each.taken.advantages_BT.flatten().tolist() for each in terms]
    assert advantages[0] == pytest.approx(advantages[1])
    gradients = [gradient(trainer, [each]) for each in terms]
    assert torch.allclose(*gradients, rtol=0, atol=1e-6)
    counted_as_wrong = term([group])
    assert len(counted_as_wrong.batch.rows_B) == len(terms[0].batch.rows_B) + 1
    assert not torch.allclose(gradient(trainer, [counted_as_wrong]), gradients[0], rtol=0, atol=1e-4)


def test_the_ratio_is_taken_at_the_sampling_temperature(sample, train_rows, trainer, term):
    hot = Sampling(max_new_tokens=8, temperature=1.3)
    groups = sample(train_rows, 8, hot, seed=3)
    gaps = []
    for sampling in (hot, SAMPLING):
        policy = term(groups, version=0, sampling=sampling)
        with torch.no_grad():
            policy.loss(trainer.forward(policy.batch), policy.batch)
        gaps.append(policy.agreement.gap)
    assert gaps[0] < 1e-5 and gaps[1] > 0.05


def test_a_stale_sample_is_no_disagreement_of_engine_and_trainer(groups, moved, term):
    policy = term(groups, version=4)
    gradient(moved, [policy])
    assert policy.agreement.tokens == 0 and policy.metrics()["staleness"] == 4.0


def test_a_sampler_that_is_not_the_one_that_sampled_is_refused(groups, moved, term, base):
    """Full-vocabulary centering recomputes what the engine says it drew from."""
    policy = term(groups, **ESTIMATORS["truncated"])
    gradient(moved, [policy])
    gaps = policy.require_agreement(1e-3, step=1)
    assert gaps["logprob_gap"] is None and gaps["sampler_gap"] < 1e-5  # stale, and drawn by the engine
    policy = term(groups, **ESTIMATORS["truncated"])
    policy.engine = open_engine(base, EngineParams(), Runtime(threads=1))
    policy.engine.load_weights(moved.weights(), 7)
    gradient(moved, [policy])
    with pytest.raises(PosttrainError, match="disagree by"):
        policy.require_agreement(1e-3, step=1)


def test_centering_of_the_exact_ratio_that_moves_something_is_refused(groups, moved, term):
    policy = term(groups, loss=PolicyGradient(), centering=FullVocabulary(), advantage=Rloo())
    gradient(moved, [policy])
    assert policy.sums["drift"] / policy.ratios.tokens < 1e-5
    policy.require_agreement(1e-3, step=1)
    policy.sums["drift"] = 0.01 * policy.ratios.tokens
    with pytest.raises(GuardError, match=r"mean score is 1\.0e-02 a token at step 1 and must be 0"):
        policy.require_agreement(1e-3, step=1)


def test_centering_tells_the_drift_that_it_removes(groups, moved, trainer, term):
    stale, fresh = (term(groups, version=v, **ESTIMATORS["truncated"]) for v in (1, 0))
    gradient(moved, [stale])
    gradient(trainer, [fresh])
    assert stale.metrics()["drift"] > 1e-3 > 1e-4 > fresh.metrics()["drift"]


def test_a_later_update_is_clipped_against_the_policy_before_the_first(groups, trainer, moved, term):
    policy = term(groups)
    scores = trainer.score(policy.batch, SAMPLING.temperature)
    policy.taken = replace(policy.taken, proximal_BT=scores.logprobs_BT)
    policy.first_update = False
    gradient(moved, [policy])
    expected = moved.score(policy.batch, 1.0).logprobs_BT - scores.logprobs_BT
    ratio, advantages = expected.exp(), policy.taken.advantages_BT
    clipped = ((advantages > 0) & (ratio > 1.28)) | ((advantages < 0) & (ratio < 0.8))
    share = (clipped & policy.batch.mask_BT).sum() / policy.batch.mask_BT.sum()
    assert policy.metrics()["clip_fraction"] == pytest.approx(float(share), abs=1e-6) and share > 0.01


def test_a_critic_learns_without_moving_the_policy(groups, base, rl_params, engine):
    trainer = open_trainer(base, OptimizerParams(), 1, Runtime(threads=1), ValueHeadParams())
    params = rl_params(advantage={"kind": "gae"})
    taken = experience(groups, worth(groups, params), params, pad_id=0)
    assert len(taken.batch.rows_B) == sum(s.scorable for group in groups for s in group)  # all of them
    noise = torch.randn(taken.batch.mask_BT.shape, generator=torch.Generator().manual_seed(1))
    taken = replace(taken, advantages_BT=noise, returns_BT=noise)
    with_critic = PolicyTerm(taken, params, engine, 0, first_update=True)
    own = gradient(trainer, [with_critic])
    assert trainer.value_head.weight.grad.abs().max() > 1e-3
    alone = gradient(trainer, [PolicyTerm(replace(taken, returns_BT=None), params, engine, 0, True)])
    assert torch.equal(own, alone)
    assert with_critic.metrics()["value_loss"] > 0


@pytest.mark.parametrize("aggregation", [TokenMean(), SequenceMean(), FixedLength(length=5)])
def test_the_penalty_has_the_gradient_of_its_kl_at_the_samples(groups, moved, term, aggregation):
    """Exact token ratio x (log policy - log reference) x score by hand, whatever ratio the loss takes."""
    loss = {"loss": PpoClip(), "aggregation": aggregation}  # which takes no ratio itself
    without = gradient(moved, [term(groups, **loss)])
    policy = term(groups, **loss, kl=KlPenalty(coefficient=0.7))
    found = gradient(moved, [policy]) - without
    batch, counts = policy.batch, policy.taken.counts
    logits = moved.forward(batch).logits_BTV
    logprobs = logits.log_softmax(-1).gather(-1, batch.target_BT.unsqueeze(-1)).squeeze(-1)
    log_ratio = (logprobs - policy.taken.behaviour.logprobs_BT).detach()
    per_token = (log_ratio.exp() * log_ratio * logprobs).where(batch.mask_BT, torch.zeros(()))
    lengths = batch.mask_BT.sum(1)
    total = {
        "token_mean": per_token.sum() / counts.tokens,
        "sequence_mean": (per_token.sum(1) / lengths).sum() / counts.sequences,
        "fixed_length": per_token.sum() / (5 * counts.sequences),
    }[aggregation.kind]
    moved.model.zero_grad(set_to_none=True)
    (0.7 * total).backward()
    expected = torch.cat([p.grad.flatten() for p in moved.model.parameters()])
    assert torch.allclose(found, expected, rtol=0, atol=2e-5) and expected.abs().max() > 1e-3
    kl = (log_ratio.exp() * log_ratio)[batch.mask_BT].mean()
    assert policy.metrics()["reference_kl"] == pytest.approx(float(kl), rel=1e-4)
