"""What each advantage does to two prompts of unequal difficulty, exactly, with right or wrong as the reward.

Given which samples of a batch are right, the samples are independent, and their scores have the means and
scatters of the right and of the wrong sequences of their prompt. So expectation and variance of a batch's
gradient are exact sums over the 2^(P G) patterns of right and wrong, each of which the project's own function
gives its advantages. Gradients are those of the return; the prompts have parameters of their own.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product
from statistics import mean
from typing import Any, NamedTuple

import torch
from pydantic import ValidationError
from torch import Tensor

from benchmarks.proof.bias import REGULARISERS, Problem, scores_SP, spread
from benchmarks.proof.tabular import flat
from stages.estimators.advantages import (
    dr_grpo,
    grpo,
    reinforce_plus_plus,
    reinforce_plus_plus_baseline,
    rloo,
    signbalance,
)
from stages.estimators.params import (
    AdvantageChoice,
    AllCorrect,
    DrGrpo,
    EstimatorParams,
    FullVocabulary,
    Grpo,
    Level,
    PolicyGradient,
    Ratio,
    ReinforcePlusPlus,
    ReinforcePlusPlusBaseline,
    Rloo,
    Scope,
    SequenceMean,
    SignBalance,
    TokenMean,
)

GROUP, SUCCESS = 4, (0.1, 0.6)  # of the hard and of the easy prompt, under the sampler
WEIGHTS = ("exact r", "1 (none)", "min(r, 2)", "clip [.8, 1.2]")
EXACT = "exact r"
CHOICES: dict[str, AdvantageChoice] = {
    "rloo": Rloo(),
    "dr_grpo": DrGrpo(),
    "grpo": Grpo(),
    "reinforce++": ReinforcePlusPlus(),
    "reinforce++ baseline": ReinforcePlusPlusBaseline(),
    "signbalance": SignBalance(),
    "signbalance, paper": SignBalance(all_correct=AllCorrect.PAPER),
    "signbalance, batch": SignBalance(scope=Scope.BATCH),
}


def advantages_PG(choice: AdvantageChoice, rewards_PG: Tensor) -> Tensor:
    """The project's, every sample scorable."""
    scorable_PG = torch.ones_like(rewards_PG, dtype=torch.bool)
    if isinstance(choice, SignBalance):
        return signbalance(
            rewards_PG, scorable_PG, choice.scope, choice.all_correct, choice.rho_max
        ).advantages.values_PG
    functions: dict[type, Callable[..., Any]] = {
        Rloo: rloo,
        DrGrpo: dr_grpo,
        Grpo: grpo,
        ReinforcePlusPlus: reinforce_plus_plus,
        ReinforcePlusPlusBaseline: reinforce_plus_plus_baseline,
    }
    values_PG: Tensor = functions[type(choice)](rewards_PG, scorable_PG).values_PG
    return values_PG


def refusal(choice: AdvantageChoice, weight: str, centred: bool) -> str | None:
    """The project's own words where it does not take this, even with the bias acknowledged."""
    try:
        EstimatorParams(
            advantage=choice,
            loss=PolicyGradient(ratio=Ratio(level=Level.TOKEN, regulariser=REGULARISERS[weight])),
            centering=FullVocabulary() if centred else None,
            # all sequences here have one length, so that the two are the same
            aggregation=SequenceMean() if isinstance(choice, SignBalance) else TokenMean(),
            acknowledge_prefix_bias=True,
        )
    except ValidationError as refused:
        return str(refused.errors()[0]["msg"]).removeprefix("Value error, ")
    return None


def prompt(seed: int, success: float) -> Problem:
    """A random problem whose sampler is right with about this probability: rewards 0 and 1."""
    drawn = Problem.random(seed)
    probability_S = drawn.sampler.probability_S()
    order_S = torch.randperm(
        len(probability_S), generator=torch.Generator().manual_seed(seed)
    )  # right until the probability is used up
    reward_S = torch.zeros_like(probability_S)
    reward_S[order_S] = (probability_S[order_S].cumsum(0) <= success).to(probability_S)
    return Problem(drawn.policy, drawn.sampler, reward_S)


class Classes(NamedTuple):
    """Of one prompt's scores: wrong sequences at index 0, right ones at 1."""

    right: float  # probability
    mean_CP: Tensor
    scatter_C: Tensor  # trace of the covariance within the class


def classes(problem: Problem, scores: Tensor) -> Classes:
    probability_S = problem.sampler.probability_S()
    means, scatters = [], []
    for verdict in (0.0, 1.0):
        chance_S = probability_S.where(problem.reward_S == verdict, 0.0)
        chance_S = chance_S / chance_S.sum()
        means.append(chance_S @ scores)
        scatters.append(chance_S @ (scores - means[-1]).square().sum(1))
    right = float(probability_S @ problem.reward_S)
    return Classes(right, torch.stack(means), torch.stack(scatters))


@dataclass(frozen=True)
class Moments:
    """Exact. `cosine_true`: with the gradient of the mean over prompts of E_p[reward].

    `weight_hard`, `weight_easy`: the multiple of the prompt's gradient under leave-one-out with the same
    f(r), by projection; `beside`: the norm of what is not such a multiple, as a share. `noise`: the trace of
    the covariance over the squared norm of the expectation, so that a factor on the advantage is no matter.
    """

    cosine_true: float
    weight_hard: float
    weight_easy: float
    beside: float
    noise: float


@cache
def patterns(name: str, prompts: int) -> tuple[Tensor, Tensor]:
    """Every pattern of right (1) and wrong (0) of a batch [N, P, G], and its advantages."""
    every_NPG = torch.tensor(list(product((0.0, 1.0), repeat=prompts * GROUP)), dtype=torch.float64)
    every_NPG = every_NPG.view(-1, prompts, GROUP)
    return every_NPG, torch.stack([advantages_PG(CHOICES[name], rewards_PG) for rewards_PG in every_NPG])


def expectation_and_variance(name: str, prompts: Sequence[Classes]) -> tuple[Tensor, float]:
    """Of the batch's gradient [P, parameters], the mean over its samples; and the trace of its covariance."""
    right_NPG, values_NPG = patterns(name, len(prompts))
    values_NPG = values_NPG / right_NPG[0].numel()
    success_P1 = torch.tensor([[of.right] for of in prompts], dtype=torch.float64)
    chance_N = torch.where(right_NPG == 1, success_P1, 1 - success_P1).flatten(1).prod(1)
    of_class_NPGC = torch.stack([1 - right_NPG, right_NPG], -1)
    mean_PCW = torch.stack([of.mean_CP for of in prompts])
    scatter_PC = torch.stack([of.scatter_C for of in prompts])
    gradient_NPW = torch.einsum("npg,npgc,pcw->npw", values_NPG, of_class_NPGC, mean_PCW)
    scatter_N = torch.einsum("npg,npgc,pc->n", values_NPG.square(), of_class_NPGC, scatter_PC)
    expected_PW = torch.einsum("n,npw->pw", chance_N, gradient_NPW)
    square = chance_N @ (gradient_NPW.square().sum((1, 2)) + scatter_N)
    return expected_PW, float(square - expected_PW.square().sum())


def moments(name: str, problems: Sequence[Problem], weight: str, centred: bool) -> Moments:
    ratio = Ratio(level=Level.TOKEN, regulariser=REGULARISERS[weight])
    plain, taken = (
        [classes(problem, scores_SP(problem, ratio, given)) for problem in problems]
        for given in (False, centred)
    )
    expected, variance = expectation_and_variance(name, taken)
    unit, _ = expectation_and_variance("rloo", plain)
    true = torch.stack([-flat(problem.policy.true_gradient(problem.reward_S)) for problem in problems])
    weights = (expected * unit).sum(1) / unit.square().sum(1)
    return Moments(
        cosine_true=float(torch.cosine_similarity(expected.flatten(), true.flatten(), 0)),
        weight_hard=float(weights[0]),
        weight_easy=float(weights[1]),
        beside=float((expected - weights[:, None] * unit).norm() / expected.norm()),
        noise=variance / float(expected.square().sum()),
    )


def measure(seeds: Sequence[int]) -> list[dict[str, Any]]:
    """A row for each advantage, weight and centering: its moments for every seed, or why it is refused."""
    pairs = [[prompt(1000 * seed + p, success) for p, success in enumerate(SUCCESS)] for seed in seeds]
    rows = []
    for (name, choice), weight, centred in product(CHOICES.items(), WEIGHTS, (False, True)):
        if centred and weight == EXACT:
            continue  # changes nothing
        row: dict[str, Any] = {"advantage": name, "regulariser": weight, "centred": centred}
        row["refused"] = refusal(choice, weight, centred)
        row["seeds"] = []
        if row["refused"] is None:
            row["seeds"] = [asdict(moments(name, problems, weight, centred)) for problems in pairs]
        rows.append(row)
    return rows


def lines(rows: Sequence[dict[str, Any]], seeds: Sequence[int]) -> list[str]:
    table = [
        f"Advantages by enumeration: token level, 2 prompts x {GROUP} samples, right with probability "
        f"{SUCCESS[0]} (hard) and {SUCCESS[1]} (easy) or a little less",
        f"mean (lowest, highest) of {len(seeds)} random pairs; weight: multiple of the prompt's "
        "gradient under leave-one-out",
        f"  {'advantage':20} {'f(r)':14} {'centred':7} {'cos, TRUE':>20} {'weight, hard':>20} "
        f"{'weight, easy':>20} {'not a multiple':>14} {'variance / mean^2':>20}",
    ]
    refused: dict[str, int] = {}
    for row in rows:
        if row["refused"]:
            refused[row["refused"]] = refused.get(row["refused"], 0) + 1
            continue
        found = {key: [of_seed[key] for of_seed in row["seeds"]] for key in row["seeds"][0]}
        table.append(
            f"  {row['advantage']:20} {row['regulariser']:14} {'yes' if row['centred'] else 'no':7} "
            f"{spread(found['cosine_true'], '.3f'):>20} {spread(found['weight_hard'], '.3f'):>20} "
            f"{spread(found['weight_easy'], '.3f'):>20} {mean(found['beside']):14.1g} "
            f"{spread(found['noise'], '.1f'):>20}"
        )
    table += ["  refused, not measured:", *(f"    {why}: {count} rows" for why, count in refused.items())]
    return table
