"""What is watched while RL runs: can anything be learnt, does width fall while reward rises."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from stages.errors import GuardError
from stages.rl.params import PreflightParams
from stages.sampling.judged import Judged, strategies

WINDOW = 10  # steps that are averaged
REWARD_RISE = 0.05
DISTINCT_FALL = 0.1  # relative


@dataclass(frozen=True)
class StepCounts:
    """Of one step's groups; shares are over what the name says. None: nothing had a verdict."""

    pass_rate: float | None  # right among scorable samples
    distinct_correct: float | None  # mean over groups with a verdict of the strategies among right samples
    zero_variance: float  # groups without a gradient
    truncated: float
    unscorable: int
    mean_length: float


def count(groups: Sequence[Sequence[Judged]], informative: Sequence[bool]) -> StepCounts:
    samples = [sample for group in groups for sample in group]
    scorable = [sample for sample in samples if sample.scorable]
    judged = [group for group in groups if any(sample.scorable for sample in group)]
    return StepCounts(
        pass_rate=sum(sample.correct for sample in scorable) / len(scorable) if scorable else None,
        distinct_correct=sum(len(strategies(group)) for group in judged) / len(judged) if judged else None,
        zero_variance=1 - sum(informative) / len(groups),
        truncated=sum(sample.truncated for sample in samples) / len(samples),
        unscorable=len(samples) - len(scorable),
        mean_length=sum(len(sample.rollout.completion_ids) for sample in samples) / len(samples),
    )


def preflight(counts: StepCounts, params: PreflightParams) -> None:
    """Raises GuardError, with the number, if the first rollouts show that nothing can be learnt."""
    if counts.truncated > params.max_truncated:
        raise GuardError(
            f"{counts.truncated:.0%} of the first rollouts were cut at max_new_tokens: "
            "raise rl.sampling.max_new_tokens, or the reward stays 0"
        )
    if counts.pass_rate is None:
        raise GuardError(
            f"none of the first {counts.unscorable} rollouts has a verdict: the verifier fails on all of "
            "them; see its reasons with `posttrain logs`, or raise runtime.verifier_deadline_s"
        )
    if counts.zero_variance > params.max_zero_variance:
        raise GuardError(
            f"{counts.zero_variance:.0%} of the first groups have no reward variance (pass rate "
            f"{counts.pass_rate:.2f}): nothing can be learnt; take other prompts, or larger groups"
        )


@dataclass
class WidthAlarm:
    """Distinct correct strategies fall while the pass rate rises: the first sign of collapse."""

    pass_rates: list[float] = field(default_factory=list)
    distinct: list[float] = field(default_factory=list)
    raised_at: int | None = None

    def update(self, step: int, counts: StepCounts) -> bool:
        """True while the last window has lost width against the first one and gained reward."""
        if counts.pass_rate is None or counts.distinct_correct is None:
            return False
        self.pass_rates.append(counts.pass_rate)
        self.distinct.append(counts.distinct_correct)
        if len(self.distinct) < 2 * WINDOW:
            return False
        before, now = _mean(self.distinct[:WINDOW]), _mean(self.distinct[-WINDOW:])
        gained = _mean(self.pass_rates[-WINDOW:]) - _mean(self.pass_rates[:WINDOW])
        alarming = gained > REWARD_RISE and now < (1 - DISTINCT_FALL) * before
        if alarming and self.raised_at is None:
            self.raised_at = step
        return alarming


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
