"""The groups of a step: one round of prompts, or rounds until enough groups have reward variance (DAPO).

Groups are taken or left whole. What a round takes depends on its number alone, so a resumed step repeats it.
"""

from dataclasses import dataclass

from stages.context import StageContext
from stages.cursor import rows_of_step
from stages.domains.pool import VerifierPool
from stages.estimators.params import Head
from stages.rl.params import RlParams
from stages.rl.policy import Policy
from stages.rl.worth import with_variance_P
from stages.sampling.judged import Judged, sample_groups


@dataclass(frozen=True)
class Collected:
    """`sampled` are all groups of the step's rounds, `taken` those that the step trains on."""

    sampled: list[list[Judged]]
    taken: list[list[Judged]]
    rounds: int

    @property
    def varied(self) -> list[bool]:
        return with_variance_P(self.sampled)


def collect(ctx: StageContext[RlParams], policy: Policy, pool: VerifierPool, first_round: int) -> Collected:
    """Sample with the weights that the engine holds; rounds are counted over the whole run."""
    params = ctx.params
    wanted, most = params.prompts_per_step, 1
    if params.dynamic_sampling is not None:
        most = params.dynamic_sampling.max_rounds
    sampled: list[list[Judged]] = []
    for turn in range(most):
        sampled += sample_round(ctx, policy, pool, first_round + turn)
        if params.dynamic_sampling is None:
            return Collected(sampled, sampled, 1)
        varied = [group for group, varies in zip(sampled, with_variance_P(sampled), strict=True) if varies]
        if len(varied) >= wanted:
            break
    return Collected(sampled, varied[:wanted], turn + 1)


def sample_round(
    ctx: StageContext[RlParams], policy: Policy, pool: VerifierPool, number: int
) -> list[list[Judged]]:
    params = ctx.params
    rows = rows_of_step(len(policy.rows), params.prompts_per_step, number, ctx.seed("rows"))
    return sample_groups(
        policy.engine,
        policy.tokenizer,
        pool,
        [policy.rows[index] for index in rows],
        params.group_size,
        params.sampling,
        ctx.seed("samples", number),
        head=params.centering.k if isinstance(params.centering, Head) else 0,
    )
