"""Which answers a guess can hit: a refusal before anything is sampled, and an audit of the first rollouts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from stages.context import StageContext
from stages.domains.pool import VerifierPool
from stages.domains.prompt_table import PromptRow
from stages.domains.selection import choose
from stages.estimators.answer_class import audit, refuse_vanilla_grpo
from stages.estimators.params import Grpo
from stages.rl.params import RlParams
from stages.sampling.judged import Judged

CANDIDATES = 8  # of a constant answer: the most frequent right ones
JUDGED_PROMPTS = 200  # that each candidate is tried on, besides those that were sampled
NOTABLE_ACCURACY = 0.05  # of a constant answer


def refuse_guessing(rows: Sequence[PromptRow], params: RlParams) -> None:
    """Raises GuardError for vanilla GRPO on bounded answers that the recipe does not acknowledge."""
    if isinstance(params.advantage, Grpo):
        audits = audit([row.prompt.answer_class for row in rows], [[]] * len(rows), {})
        refuse_vanilla_grpo(audits, params.advantage.acknowledge_guessing)


def audit_first_rollouts(
    ctx: StageContext[RlParams],
    rows: Sequence[PromptRow],
    groups: Sequence[Sequence[Judged]],
    pool: VerifierPool,
) -> list[dict[str, Any]]:
    """One record a class: guess rate, what one constant answer solves, rewards of the first groups."""
    rewards: dict[str, list[float | None]] = {}
    right: Counter[str] = Counter()
    for group in groups:
        for sample in group:
            rewards.setdefault(sample.row.prompt.id, []).append(sample.judgement.verdict.reward)
            right[sample.text] += sample.correct
    sampled = [row for row in rows if row.prompt.id in rewards]
    others = [row for row in rows if row.prompt.id not in rewards]
    looked_at = sampled + choose(others, JUDGED_PROMPTS, ctx.seed("audit"))
    candidates = [text for text, count in right.most_common(CANDIDATES) if count]
    judgements = pool.judge(
        [row.prompt for _ in candidates for row in looked_at],
        [text for text in candidates for _ in looked_at],
    )
    solved = [judgement.verdict.reward == 1.0 for judgement in judgements]
    verdicts = {
        text: solved[place * len(looked_at) : (place + 1) * len(looked_at)]
        for place, text in enumerate(candidates)
    }
    audits = audit(
        [row.prompt.answer_class for row in looked_at],
        [rewards.get(row.prompt.id, []) for row in looked_at],
        verdicts,
    )
    for found in audits:
        accuracy = found.constant_accuracy or 0.0
        if accuracy >= NOTABLE_ACCURACY and accuracy * found.prompts > 1:  # more than the prompt it is from
            ctx.notice(
                f"one constant answer ({found.constant_answer!r}) solves {accuracy:.0%} of "
                f"{found.prompts} {found.answer_class} prompts: reward can rise without reading them"
            )
    return [asdict(found) for found in audits]
