"""The audit of answer classes before RL on right and wrong answers (arXiv 2609.04063).

Where few answers are possible a guess is often right, and GRPO rewards a lone lucky guess as highly as a
lone right derivation: sqrt(G - 1). A class is `"open"`, or `"<name>:<number of possible answers>"`, such as
`yes_no:2`. Torch-free.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from stages.errors import GuardError

OPEN = "open"
RIGHT = 1.0
BOUNDED_GUESS_RATE = 0.005
"""The paper's flag: a class whose guess rate reaches this is bounded."""
BOUNDED_SHARE = 0.1
"""Share of prompts in bounded classes above which vanilla GRPO must be acknowledged."""

_BOUNDED = re.compile(r"[a-z][a-z0-9_]*:([1-9][0-9]*)")


@dataclass(frozen=True)
class AnswerClassAudit:
    """One class of a training set; None where there is nothing to count.

    `guess_rate`: 1 / possible answers, 0 if open. `constant_answer`: the candidate that alone solves the
    largest share of the class's prompts, `constant_accuracy`. Rewards: over scorable samples, population std.
    `groups`: those with a scorable sample, of which `lone_right_share` have one right sample (reward 1) and a
    wrong one, and `zero_variance_share` have rewards that are all equal.
    """

    answer_class: str
    prompts: int
    guess_rate: float
    constant_answer: str | None
    constant_accuracy: float | None
    groups: int
    unscorable_samples: int
    reward_mean: float | None
    reward_std: float | None
    lone_right_share: float | None
    zero_variance_share: float | None

    @property
    def bounded(self) -> bool:
        return self.guess_rate >= BOUNDED_GUESS_RATE


def surface(answer_class: str) -> int | None:
    """The number of possible answers of a class, None if open.

    Raises GuardError unless it is `open` or `<name>:<number>` with at least two answers.
    """
    if answer_class == OPEN:
        return None
    found = _BOUNDED.fullmatch(answer_class)
    if not found or int(found[1]) < 2:
        raise GuardError(
            f"answer class {answer_class!r} is neither 'open' nor '<name>:<number of possible answers>' with "
            f"at least 2 answers, such as 'yes_no:2': rename it"
        )
    return int(found[1])


def audit(
    answer_classes: Sequence[str],
    rewards: Sequence[Sequence[float | None]],
    constant_verdicts: Mapping[str, Sequence[bool]],
) -> list[AnswerClassAudit]:
    """One audit per class, by name. All sequences are over the same prompts.

    `rewards`: of each prompt's group of samples, None where unscorable. `constant_verdicts`: for each
    candidate of a constant answer, whether it solves each prompt; ties go to the first candidate.
    Raises GuardError for lengths that differ, no prompt, or a class that `surface` refuses.
    """
    prompts = len(answer_classes)
    if not prompts:
        raise GuardError("the audit of answer classes has no prompt: give it the training prompts")
    if {prompts} != {len(rewards), *map(len, constant_verdicts.values())}:
        raise GuardError("the audit of answer classes needs one group and one verdict a candidate per prompt")
    return [
        _audit_class(
            name, [p for p in range(prompts) if answer_classes[p] == name], rewards, constant_verdicts
        )
        for name in sorted(set(answer_classes))
    ]


def refuse_vanilla_grpo(audits: Sequence[AnswerClassAudit], acknowledged: bool) -> None:
    """Raises GuardError if more than a tenth of the prompts have bounded answers and nobody acknowledged it.

    A stronger KL penalty is no remedy and not offered as one.
    """
    bounded = [found for found in audits if found.bounded]
    share = sum(found.prompts for found in bounded) / max(sum(found.prompts for found in audits), 1)
    if acknowledged or share <= BOUNDED_SHARE:
        return
    named = ", ".join(f"{found.answer_class} ({found.guess_rate:.1%})" for found in bounded)
    raise GuardError(
        f"{share:.0%} of the prompts can be answered by guessing: {named}; GRPO gives a lone lucky guess its "
        f"largest advantage. Set advantage.kind to signbalance, dr_grpo or rloo, or set "
        f"advantage.acknowledge_guessing=true"
    )


def _audit_class(
    name: str,
    places: Sequence[int],
    rewards: Sequence[Sequence[float | None]],
    constant_verdicts: Mapping[str, Sequence[bool]],
) -> AnswerClassAudit:
    possible = surface(name)
    solved = {answer: fmean(verdicts[p] for p in places) for answer, verdicts in constant_verdicts.items()}
    constant = max(solved, key=solved.__getitem__, default=None)
    scored = [[reward for reward in rewards[p] if reward is not None] for p in places]
    groups = [group for group in scored if group]
    samples = [reward for group in groups for reward in group]
    return AnswerClassAudit(
        answer_class=name,
        prompts=len(places),
        guess_rate=1 / possible if possible else 0.0,
        constant_answer=constant,
        constant_accuracy=solved[constant] if constant is not None else None,
        groups=len(groups),
        unscorable_samples=sum(len(rewards[p]) for p in places) - len(samples),
        reward_mean=fmean(samples) if samples else None,
        reward_std=pstdev(samples) if samples else None,
        lone_right_share=_share([group.count(RIGHT) == 1 < len(group) for group in groups]),
        zero_variance_share=_share([len(set(group)) == 1 for group in groups]),
    )


def _share(verdicts: Sequence[bool]) -> float | None:
    return fmean(verdicts) if verdicts else None
