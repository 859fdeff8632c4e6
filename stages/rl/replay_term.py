"""The replay term of a step as the trainer takes it: elites of the frozen base, in the recipe's form.

It never enters group statistics or ratios. Every form weighs prompts alike, and the elites of a prompt alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from stages.engines.batch import TokenBatch, align_to_targets, completion_batch
from stages.engines.protocol import Forward
from stages.estimators.blockwise import target_logprobs_BT
from stages.estimators.losses import sequence_mean_B
from stages.estimators.params import FloorReplay, JensenShannonReplay, NarrowReplay, ReplayChoice
from stages.estimators.replay import (
    elite_weights,
    floor_weights_B,
    jensen_shannon_BT,
    narrow_prompts,
    replay_nll_B,
)
from stages.rl.elites import Elites, ReplayElite
from stages.sampling.judged import Judged, strategies


@dataclass
class ReplayTerm:
    """One batch of elites; the sums are of the micro-batches that have passed through it."""

    batch: TokenBatch
    weights_B: Tensor
    base_logprobs_BT: Tensor
    temperature_B: Tensor
    choice: ReplayChoice
    nll: float = 0.0
    capped: int = 0
    elites: int = field(init=False)

    def __post_init__(self) -> None:
        self.elites = len(self.weights_B)

    def loss(self, forward: Forward, micro: TokenBatch) -> Tensor:
        """Coefficient x mean over prompts of the mean over elites of the form's loss (methods.md 1(b))."""
        weights_B, mask_BT = micro.take_rows(self.weights_B), micro.mask_BT
        temperature: float | Tensor = 1.0
        if isinstance(self.choice, JensenShannonReplay):  # both policies as they were when the base was asked
            temperature = micro.take_rows(self.temperature_B)
        logprobs_BT = target_logprobs_BT(forward.logits_BTV, micro.target_BT, mask_BT, temperature)
        nll_B = replay_nll_B(logprobs_BT, mask_BT)
        self.nll += float((weights_B * nll_B).sum().detach())
        match self.choice:
            case JensenShannonReplay():
                base_BT = micro.take(self.base_logprobs_BT)
                loss_B = sequence_mean_B(jensen_shannon_BT(logprobs_BT, base_BT, mask_BT), mask_BT)
            case FloorReplay(floor=floor, max_weight=most):
                fallen_B, capped = floor_weights_B(logprobs_BT, mask_BT, floor, most)
                self.capped += capped
                loss_B = fallen_B * nll_B
            case _:
                loss_B = nll_B
        return self.choice.coefficient * (weights_B * loss_B).sum()

    def metrics(self) -> dict[str, float]:
        """replay_nll: nats a token of the elites drawn; replay_capped: the share whose weight was capped."""
        told: dict[str, float] = {"replay_nll": self.nll, "replay_elites": self.elites}
        if isinstance(self.choice, FloorReplay):
            told["replay_capped"] = self.capped / self.elites
        return told


def drawn_elites(
    elites: Elites, choice: ReplayChoice, groups: Sequence[Sequence[Judged]], seed: int
) -> list[ReplayElite]:
    """The step's elites; `where_narrow` only looks at the prompts of the step's own groups."""
    if not choice.coefficient:
        return []
    among = None
    if isinstance(choice, NarrowReplay):
        found: dict[str, set[str]] = {}
        for group in groups:
            found.setdefault(group[0].row.prompt.id, set()).update(strategies(group))
        among = narrow_prompts(found, elites.signatures)
    return elites.draw(choice.elites_per_step, seed, among)


def replay_term(elites: Sequence[ReplayElite], choice: ReplayChoice, pad_id: int) -> ReplayTerm:
    batch = completion_batch(
        [elite.prompt_ids for elite in elites], [elite.completion_ids for elite in elites], pad_id
    )
    return ReplayTerm(
        batch,
        torch.tensor(elite_weights([elite.prompt_id for elite in elites])),
        align_to_targets(batch, [elite.logprobs for elite in elites]),
        torch.tensor([elite.temperature for elite in elites]),
        choice,
    )
