"""Policy, sampler and reference as tables of logits by the token before, and losses written out on them.

All are at temperature 1.3: whatever forgets it, or takes it from elsewhere, is off by far more than rounding.
"""

from dataclasses import replace
from types import SimpleNamespace

import torch

from data_contracts.values import StopReason
from stages.domains.pool import Judgement
from stages.domains.protocol import Unscorable, Verdict
from stages.engines.params import Sampling
from stages.engines.protocol import Forward, Rollout, Scores
from stages.estimators.distribution import FromLogits
from stages.estimators.params import (
    Cispo,
    Clip,
    FixedLength,
    Head,
    Mask,
    PolicyGradient,
    Ratio,
    SequenceMean,
    TokenMean,
    Truncate,
    Uncorrected,
)
from stages.rl.experience import experience, scored
from stages.rl.policy_term import PolicyTerm
from stages.rl.worth import worth
from stages.sampling.judged import Judged

TAU = 1.3
SAMPLING = Sampling(max_new_tokens=8, temperature=TAU)
PROMPTS = [[1, 2], [3], [2, 2, 1]]
COMPLETIONS = [
    [[4, 5, 6], [5], [6, 4], [3, 3]],
    [[4, 4], [3, 5, 6, 6], [6], [5, 4, 3]],
    [[3, 6], [4], [5, 5, 5], [6, 3]],
]
REWARDS = [[1, 0, 0, None], [1, 1, 0, 1], [1, 1, 1, 1]]
TOKENS = 6 + 10 + 8  # of samples with a verdict
SAMPLES = 11
ADVANTAGES = {
    "grpo": [[2**0.5, -(0.5**0.5), -(0.5**0.5)], [3**-0.5, 3**-0.5, -(3**0.5), 3**-0.5]],
    "dr_grpo": [[2 / 3, -1 / 3, -1 / 3], [0.25, 0.25, -0.75, 0.25]],
    "rloo": [[1, -0.5, -0.5], [1 / 3, 1 / 3, -1, 1 / 3]],
}


def table_VV(seed):
    drawn = torch.Generator().manual_seed(seed)
    return torch.randn(8, 8, dtype=torch.float64, generator=drawn)


SAMPLER_VV, PROXIMAL_VV, REFERENCE_VV, POLICY_VV = (table_VV(seed) for seed in (1, 2, 3, 4))
PROXIMAL_VV = SAMPLER_VV + 0.2 * PROXIMAL_VV
POLICY_VV = PROXIMAL_VV + 0.3 * POLICY_VV


def logprobs_V(logits_VV, before):
    return (logits_VV[before] / TAU).log_softmax(-1)


def steps(prompt, completion):
    """(token before, token) of every sampled token."""
    return list(zip([prompt[-1], *completion], completion, strict=False))


def judged(head=0, version=0):
    def rollout(place, completion):
        rows = [logprobs_V(SAMPLER_VV, before) for before, _ in steps(PROMPTS[place], completion)]
        top = [row.topk(head) for row in rows] if head else []
        return Rollout(
            place,
            completion,
            [float(row[token]) for row, token in zip(rows, completion, strict=True)],
            StopReason.EOS,
            version,
            version,
            SAMPLING,
            [t.indices.tolist() for t in top] or None,
            [t.values.tolist() for t in top] or None,
        )

    return [
        [
            Judged(
                SimpleNamespace(prompt=SimpleNamespace(id=str(place))),
                PROMPTS[place],
                sample,
                rollout(place, completion),
                "",
                Judgement(
                    Verdict(unscorable=Unscorable.WALL_CLOCK) if reward is None else Verdict(reward=reward),
                    None,
                ),
            )
            for sample, (completion, reward) in enumerate(zip(group, REWARDS[place], strict=True))
        ]
        for place, group in enumerate(COMPLETIONS)
    ]


class TableEngine:
    def __init__(self, logits_VV=SAMPLER_VV):
        self.logits_VV = logits_VV
        self.loaded = None

    def distribution(self, batch, temperature):
        return FromLogits(self.logits_VV[batch.input_BT], temperature)

    def load_weights(self, tensors, version):
        self.loaded = (tensors, version)


class TableTrainer:
    """Plain gradient descent on the table, two rows a micro-batch; values are by the token before."""

    def __init__(self, logits_VV, values_V=None, rate=4.0):
        self.logits_VV = logits_VV.clone().requires_grad_()
        self.values_V = values_V
        self.rate = rate
        self.steps = 0
        self.scores = 0

    def forward(self, batch):
        values_BT = None if self.values_V is None else self.values_V[batch.input_BT]
        return Forward(self.logits_VV[batch.input_BT], values_BT)

    def step(self, terms):
        gradient = self.gradient(terms)
        with torch.no_grad():
            self.logits_VV -= self.rate * gradient
        self.steps += 1
        return float(gradient.norm())

    def gradient(self, terms):
        self.logits_VV.grad = None
        for batch, loss in terms:
            for micro in batch.micro_batches(2):
                loss(self.forward(micro), micro).backward()
        return self.logits_VV.grad

    @torch.no_grad()
    def score(self, batch, temperature):
        self.scores += 1
        return Scores(target_logprobs_BT(self.logits_VV, batch, temperature), self.forward(batch).values_BT)


def target_logprobs_BT(logits_VV, batch, temperature):
    logprobs = (logits_VV.detach()[batch.input_BT] / temperature).log_softmax(-1)
    picked_BT = logprobs.gather(-1, batch.target_BT.unsqueeze(-1)).squeeze(-1)
    return picked_BT.where(batch.mask_BT, 0.0)


class TableReference:
    def target_logprobs_BT(self, batch, temperature):
        return target_logprobs_BT(REFERENCE_VV, batch, temperature)


def term_of(params, first_update=True, proximal_VV=None, version=3):
    """As the stage makes it, of samples three steps old."""
    groups = judged(params.centering.k if isinstance(params.centering, Head) else 0)
    taken = experience(groups, worth(groups, params), params, pad_id=0)
    policy = SimpleNamespace(
        trainer=TableTrainer(POLICY_VV), reference=TableReference() if params.kl else None
    )
    taken = scored(taken, policy, params, version=version)
    if proximal_VV is not None:
        taken = replace(taken, proximal_BT=target_logprobs_BT(proximal_VV, taken.batch, TAU))
    return PolicyTerm(taken, params, TableEngine(), version, first_update)


def by_hand(params, token_loss, every_group=False, logits_VV=POLICY_VV, length=None):
    """Gradient of the aggregated losses; `token_loss(row, t, advantage)` of one token of one sample."""
    logits_VV = logits_VV.clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for place, group in enumerate(COMPLETIONS if every_group else COMPLETIONS[:2]):
        kept = [c for c, reward in zip(group, REWARDS[place], strict=True) if reward is not None]
        advantages = [0.0] * 4 if place == 2 else ADVANTAGES[params.advantage.kind]
        for sample, completion in enumerate(kept):
            advantage = 0.0 if place == 2 else advantages[place][sample]
            row = [
                SimpleNamespace(
                    token=token,
                    p=logprobs_V(logits_VV, before),
                    q=logprobs_V(SAMPLER_VV, before),
                    old=logprobs_V(PROXIMAL_VV, before),
                    ref=logprobs_V(REFERENCE_VV, before),
                )
                for before, token in steps(PROMPTS[place], completion)
            ]
            losses = torch.stack([token_loss(row, at, advantage) for at in range(len(row))])
            total = (
                total
                + {
                    "token_mean": losses.sum() / TOKENS,
                    "sequence_mean": losses.mean() / SAMPLES,
                    "fixed_length": losses.sum() / (SAMPLES * (length or 1)),
                }[params.aggregation.kind]
            )
    total.backward()
    return logits_VV.grad, float(total.detach())


def ratio_of(at, top="p", bottom="q"):
    """A token's ratio, detached."""
    return float((getattr(at, top)[at.token] - getattr(at, bottom)[at.token]).exp().detach())


def product(row, power=1.0, top="p", bottom="q"):
    value = 1.0
    for at in row:
        value *= ratio_of(at, top, bottom)
    return value**power


def truncated(r):
    return min(r, 1.1)


def masked(r):
    return r if 0.9 <= r <= 1.15 else 0.0


def clipped(r):
    return min(max(r, 0.95), 1.05)


TOKEN_WEIGHTS = {
    "exact": ({"loss": PolicyGradient()}, lambda r: r),
    "uncorrected": ({"loss": PolicyGradient(ratio=Ratio(regulariser=Uncorrected()))}, lambda r: 1.0),
    "truncated": ({"loss": PolicyGradient(ratio=Ratio(regulariser=Truncate(high=1.1)))}, truncated),
    "masked": ({"loss": PolicyGradient(ratio=Ratio(regulariser=Mask(low=0.9, high=1.15)))}, masked),
    "clipped": ({"loss": PolicyGradient(ratio=Ratio(regulariser=Clip(low=0.95, high=1.05)))}, clipped),
    "cispo": ({"loss": Cispo(clip_low=0.1, clip_high=0.2)}, lambda r: min(max(r, 0.9), 1.2)),
    "cispo, no lower clip": ({"loss": Cispo(clip_high=0.1)}, truncated),
}
AGGREGATIONS = {
    "token_mean": TokenMean(),
    "sequence_mean": SequenceMean(),
    "fixed_length": FixedLength(length=5),
}


def require_same(found, expected, atol=2e-7):
    assert expected.abs().max() > 1e-2
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)


def gradient(term, dtype=torch.float64):
    trainer = TableTrainer(POLICY_VV.to(dtype))
    return trainer.gradient([(term.batch, term.loss)])
