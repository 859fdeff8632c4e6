"""Bias and variance of every combination of ratio level, regulariser, baseline and centering, by enumeration.

All sequences of a small policy p and its sampler q are rows of one batch, so that the project's own functions
give the score of every sequence and the advantages of every pair. A group's gradient is linear in its
advantages and symmetric in its samples, which makes expectation and variance at any group size exact sums
over pairs (a U-statistic of order 2, Hoeffding 1948). Gradients are those of the return, the loss with its
sign turned; a group's is the mean over its samples of the sum over tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from statistics import mean
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from benchmarks.proof.tabular import Tabular, flat
from stages.estimators.advantages import Advantages, dr_grpo, rloo
from stages.estimators.centering import centred_logprobs, centred_policy_gradient_BT
from stages.estimators.distribution import FromLogits
from stages.estimators.losses import policy_gradient_BT
from stages.estimators.params import (
    Clip,
    DrGrpo,
    EstimatorParams,
    FullVocabulary,
    Level,
    Mask,
    PolicyGradient,
    Ratio,
    RegulariserChoice,
    Rloo,
    Truncate,
    Uncorrected,
    Unregularised,
)
from stages.estimators.ratios import weights_BT

VOCABULARY, LENGTH, GROUP, DIVERGENCE, SHIFT = 4, 3, 8, 0.09, 100.0
REGULARISERS: dict[str, RegulariserChoice] = {
    "exact r": Unregularised(),
    "1 (none)": Uncorrected(),
    "min(r, 2)": Truncate(high=2.0),
    "min(r, 1)": Truncate(high=1.0),
    "clip [.8, 1.2]": Clip(low=0.8, high=1.2),
    "mask [.5, 2]": Mask(low=0.5, high=2.0),
}
NO_BASELINE, GROUP_MEAN, LEAVE_ONE_OUT = "none", "group mean", "leave one out"
NOT_OFFERED = "no choice here: a raw reward's origin moves the gradient, or at least its variance"


@dataclass(frozen=True)
class Problem:
    """A policy, its sampler at the stated divergence, and a reward for every sequence."""

    policy: Tabular
    sampler: Tabular
    reward_S: Tensor

    @classmethod
    def random(cls, seed: int) -> "Problem":
        policy = Tabular.random(VOCABULARY, LENGTH, seed)
        drawn = torch.Generator().manual_seed(seed)
        reward_S = torch.randn(VOCABULARY**LENGTH, dtype=torch.float64, generator=drawn)
        low, high = 0.0, 4.0
        for _ in range(50):  # the noise at which the two are as far apart as stated
            middle = (low + high) / 2
            low, high = (
                (middle, high)
                if divergence(policy, policy.near(seed + 1, middle)) < DIVERGENCE
                else (low, middle)
            )
        return cls(policy, policy.near(seed + 1, low), reward_S)

    @property
    def log_ratio_ST(self) -> Tensor:
        return (self.policy.logprobs_ST() - self.sampler.logprobs_ST()).detach()


@dataclass(frozen=True)
class Combination:
    level: Level
    regulariser: str
    baseline: str
    centred: bool

    @property
    def ratio(self) -> Ratio:
        return Ratio(level=self.level, regulariser=REGULARISERS[self.regulariser])


@dataclass(frozen=True)
class Moments:
    """Exact, of the gradient of one group.

    `bias_true`, `bias_token`: distance of the expectation from the exact gradient of E_p[reward], and from
    C_tok (token level only), as a share of the exact one's norm. `moved`: by how much of its norm the
    expected gradient moves when 100 is added to every reward. `variance`: the trace of the covariance.
    """

    bias_true: float
    cosine_true: float
    bias_token: float | None
    moved: float
    variance: float


def divergence(policy: Tabular, sampler: Tabular) -> float:
    """KL(sampler || policy) per position, over the sampler's prefixes."""
    log_ratio_S = (sampler.logprobs_ST() - policy.logprobs_ST()).detach().sum(1)
    return float((sampler.probability_S() * log_ratio_S).sum()) / sampler.length


def combinations() -> list[Combination]:
    baselines = (NO_BASELINE, GROUP_MEAN, LEAVE_ONE_OUT)
    return [Combination(*parts) for parts in product(Level, REGULARISERS, baselines, (False, True))]


def refusal(combination: Combination) -> str | None:
    """The project's own words where it does not take this combination, even with the bias acknowledged."""
    if combination.baseline == NO_BASELINE:
        return NOT_OFFERED
    try:
        EstimatorParams(
            advantage=DrGrpo() if combination.baseline == GROUP_MEAN else Rloo(),
            loss=PolicyGradient(ratio=combination.ratio),
            centering=FullVocabulary() if combination.centred else None,
            acknowledge_prefix_bias=True,
        )
    except ValidationError as refused:
        return str(refused.errors()[0]["msg"]).removeprefix("Value error, ")
    return None


def needs_acknowledgement(combination: Combination) -> bool:
    """Whether it is taken only with `acknowledge_prefix_bias`."""
    try:
        EstimatorParams(
            advantage=Rloo(),
            loss=PolicyGradient(ratio=combination.ratio),
            centering=FullVocabulary() if combination.centred else None,
        )
    except ValidationError:
        return True
    return False


def computable(combination: Combination) -> bool:
    """Centering is a function of token-level weights; 1 is the same weight at every level."""
    if combination.level is Level.TOKEN:
        return True
    return not combination.centred and combination.regulariser != "1 (none)"


def scores_SP(problem: Problem, ratio: Ratio, centred: bool) -> Tensor:
    """What a sequence's advantage multiplies: minus the gradient of its loss at advantage 1, by parameter."""
    policy, logits_STV = problem.policy, problem.policy.logits_STV().detach().requires_grad_()
    one_S1 = torch.ones(len(problem.reward_S), 1, dtype=torch.float64)
    mask_ST = policy.mask_ST
    weights_ST = weights_BT(problem.log_ratio_ST, mask_ST, ratio).values_BT
    if centred:
        sampler = FromLogits(problem.sampler.logits_STV().detach())
        found = centred_logprobs(logits_STV, policy.tokens_ST, mask_ST, sampler, ratio.regulariser)
        loss_ST = centred_policy_gradient_BT(
            found.logprobs_BT, weights_ST, found.corrections_BT, one_S1, mask_ST
        )
    else:
        logprobs_ST = logits_STV.log_softmax(-1).gather(-1, policy.tokens_ST.unsqueeze(-1)).squeeze(-1)
        loss_ST = policy_gradient_BT(logprobs_ST, weights_ST, one_S1, mask_ST)
    (slope_STV,) = torch.autograd.grad(loss_ST.sum(), logits_STV)
    return -_by_parameter(policy, slope_STV)


def moments(problem: Problem, combination: Combination) -> Moments:
    scores = scores_SP(problem, combination.ratio, combination.centred)
    expected, variance = _group(problem, scores, problem.reward_S, combination.baseline)
    shifted, _ = _group(problem, scores, problem.reward_S + SHIFT, combination.baseline)
    true = -flat(problem.policy.true_gradient(problem.reward_S))
    bias_token = None
    if combination.level is Level.TOKEN:
        target = token_covariance(problem, combination.ratio)
        bias_token = float((expected - target).norm() / target.norm())
    return Moments(
        bias_true=float((expected - true).norm() / true.norm()),
        cosine_true=float(torch.cosine_similarity(expected, true, 0)),
        bias_token=bias_token,
        moved=float((shifted - expected).norm() / expected.norm()),
        variance=variance,
    )


def token_covariance(problem: Problem, ratio: Ratio) -> Tensor:
    """C_tok = sum_t E_h Cov_q(R, w_t s_t | h_t) (methods.md 3(B3)), by its definition."""
    policy, reward_S = problem.policy, problem.reward_S
    probability_S = problem.sampler.probability_S()
    weights_ST = weights_BT(problem.log_ratio_ST, policy.mask_ST, ratio).values_BT
    p_STV = policy.logits_STV().detach().softmax(-1)
    own_STV = torch.nn.functional.one_hot(policy.tokens_ST, policy.vocabulary) - p_STV
    slope_STV = torch.zeros_like(p_STV)
    for t in range(policy.length):
        prefix_S = policy.prefix_ST[:, t]
        of_prefix = torch.zeros(policy.vocabulary**t, dtype=torch.float64)
        mass = of_prefix.index_add(0, prefix_S, probability_S)
        value = of_prefix.index_add(0, prefix_S, probability_S * reward_S) / mass
        # Cov(R, Z | h) = E[(R - E[R | h]) Z | h]
        slope_STV[:, t] = ((reward_S - value[prefix_S]) * weights_ST[:, t]).unsqueeze(1) * own_STV[:, t]
    return probability_S @ _by_parameter(policy, slope_STV)


def _group(problem: Problem, scores_SP: Tensor, reward_S: Tensor, baseline: str) -> tuple[Tensor, float]:
    """Expectation and trace variance of (1/G) sum_i A_i z_i over groups of G from the sampler."""
    probability_S = problem.sampler.probability_S()
    if baseline == NO_BASELINE:
        expected, scatter = _mean_and_trace(probability_S, reward_S.unsqueeze(1) * scores_SP)
        return expected, scatter / GROUP
    advantage: Callable[[Tensor, Tensor], Advantages] = dr_grpo if baseline == GROUP_MEAN else rloo
    # The project's advantage of every pair; a pair's group mean carries (1 - 1/2) where a group's carries
    # (1 - 1/G), and both are that multiple of the leave-one-out one, sample by sample.
    pairs_N2 = torch.cartesian_prod(reward_S, reward_S)
    values_N2 = advantage(pairs_N2, torch.ones_like(pairs_N2, dtype=torch.bool)).values_PG
    scale = (1 - 1 / GROUP) / (1 - 1 / 2) if baseline == GROUP_MEAN else 1.0
    first_SS, second_SS = (values_N2.T * scale / 2).reshape(2, len(reward_S), len(reward_S))
    pair_SSP = first_SS.unsqueeze(2) * scores_SP.unsqueeze(1) + second_SS.unsqueeze(2) * scores_SP
    given_one_SP = torch.einsum("s,rsp->rp", probability_S, pair_SSP)
    expected, of_one = _mean_and_trace(probability_S, given_one_SP)
    both_N = torch.outer(probability_S, probability_S).reshape(-1)
    _, of_two = _mean_and_trace(both_N, pair_SSP.flatten(0, 1))
    return expected, 2 / (GROUP * (GROUP - 1)) * (2 * (GROUP - 2) * of_one + of_two)


def _mean_and_trace(probability_N: Tensor, values_NP: Tensor) -> tuple[Tensor, float]:
    mean_P = probability_N @ values_NP
    return mean_P, float(probability_N @ (values_NP - mean_P).square().sum(1))


def _by_parameter(policy: Tabular, slope_STV: Tensor) -> Tensor:
    """Each sequence's gradient in its logits, put where they are in the table: [S, parameters]."""
    blocks = []
    for t in range(policy.length):
        block_SHV = slope_STV.new_zeros(len(slope_STV), policy.vocabulary**t, policy.vocabulary)
        block_SHV[torch.arange(len(slope_STV)), policy.prefix_ST[:, t]] = slope_STV[:, t]
        blocks.append(block_SHV.flatten(1))
    return torch.cat(blocks, 1)


def measure(seeds: Sequence[int]) -> list[dict[str, Any]]:
    """A row for each combination: its moments for every seed, or why it was not measured."""
    problems = [Problem.random(seed) for seed in seeds]
    rows = []
    for combination in combinations():
        row: dict[str, Any] = {**asdict(combination), "refused": refusal(combination)}
        row["acknowledged"] = row["refused"] is None and needs_acknowledgement(combination)
        row["seeds"] = []
        if computable(combination):
            row["seeds"] = [asdict(moments(problem, combination)) for problem in problems]
        rows.append(row)
    return rows


def lines(rows: Sequence[dict[str, Any]], seeds: Sequence[int]) -> list[str]:
    table = [
        f"Bias and variance by enumeration: {VOCABULARY}^{LENGTH} sequences, KL(sampler || policy) "
        f"{DIVERGENCE} a position, groups of {GROUP}",
        f"mean (lowest, highest) of {len(seeds)} random policies; bias as a share of the exact gradient",
        f"  {'level':9} {'f(r)':14} {'baseline':14} {'centred':7} {'bias, TRUE':>20} {'cos, TRUE':>20} "
        f"{'bias, C_tok':>26} {'moved by +100':>13} {'variance':>20}",
    ]
    refused: dict[str, list[str]] = {}
    for row in rows:
        if not row["seeds"]:
            continue
        mark = "  +ack" if row["acknowledged"] else "  *" if row["refused"] else ""
        found = {key: [of_seed[key] for of_seed in row["seeds"]] for key in row["seeds"][0]}
        token = "-" if found["bias_token"][0] is None else spread(found["bias_token"], ".2g")
        table.append(
            f"  {row['level']:9} {row['regulariser']:14} {row['baseline']:14} "
            f"{'yes' if row['centred'] else 'no':7} {spread(found['bias_true'], '.3f'):>20} "
            f"{spread(found['cosine_true'], '.3f'):>20} {token:>26} {mean(found['moved']):13.1g} "
            f"{spread(found['variance'], '.3f'):>20}{mark}"
        )
    table += [
        "  +ack: taken only with acknowledge_prefix_bias=true",
        f"  *: {NOT_OFFERED}",
        "  refused, not measured:",
    ]
    for row in rows:
        if not row["seeds"]:
            what = f"{row['level']}, {row['regulariser']}" + (", centred" if row["centred"] else "")
            reason = next(
                other["refused"]
                for other in rows
                if other["baseline"] == LEAVE_ONE_OUT and _same_but_baseline(row, other)
            )
            found_here = refused.setdefault(reason, [])
            if what not in found_here:
                found_here.append(what)
    for reason, combined in refused.items():
        table.append(f"    {reason}: {len(combined)} pairs of level and f, with every baseline")
    return table


def _same_but_baseline(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[key] == other[key] for key in ("level", "regulariser", "centred"))


def spread(values: Sequence[float], form: str) -> str:
    """The mean, and the lowest and highest."""
    return f"{mean(values):{form}} ({min(values):{form}}, {max(values):{form}})"
