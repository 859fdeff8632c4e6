"""The held-out score whose plateau ends a distillation: mean reward on fixed validation prompts."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from stages.errors import GuardError
from stages.sampling.judged import Judged


@dataclass(frozen=True)
class Validation:
    step: int
    score: float  # mean over prompts of the share of right samples
    standard_error: float  # of that mean, over prompts
    unscorable: int
    zero_variance: float  # share of prompts whose samples are all right or all wrong: nothing for RL to learn
    surprise: float  # mean -log-prob of a sampled token, in nats: an estimate of the entropy at the switch

    def as_json(self) -> dict[str, float]:
        return asdict(self)


def score(step: int, groups: Sequence[Sequence[Judged]]) -> Validation:
    """Raises GuardError if fewer than two prompts have a verdict at all."""
    shares = []
    for group in groups:
        scorable = [sample.correct for sample in group if sample.scorable]
        if scorable:
            shares.append(sum(scorable) / len(scorable))
    if len(shares) < 2:
        raise GuardError("fewer than two validation prompts have a verdict: the switch cannot be judged")
    mean = sum(shares) / len(shares)
    variance = sum((share - mean) ** 2 for share in shares) / (len(shares) - 1)
    logprobs = [logprob for group in groups for sample in group for logprob in sample.rollout.logprobs]
    return Validation(
        step=step,
        score=mean,
        standard_error=math.sqrt(variance / len(shares)),
        unscorable=sum(not sample.scorable for group in groups for sample in group),
        zero_variance=sum(share in (0.0, 1.0) for share in shares) / len(shares),
        surprise=-sum(logprobs) / len(logprobs),
    )
