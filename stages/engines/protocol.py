"""The two protocols that every stage is written against: what samples, and what trains.

Shapes: B rows, T token positions, V vocabulary, P prompts, G samples of one prompt.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from data_contracts.values import StopReason
from stages.engines.params import Sampling

if TYPE_CHECKING:
    from torch import Tensor

    from stages.engines.batch import TokenBatch
    from stages.estimators.distribution import Distribution


@dataclass(frozen=True)
class Rollout:
    """One completion as it was sampled; its ids go to the loss as they are.

    `logprobs` are those of the distribution that sampled, which `sampling` names (temperature and support),
    computed with the weights of `scored_version`; those of `weight_version` drew the tokens. Where a head
    was asked for, `head_ids` and `head_logprobs` are its most likely tokens at each position, best first.
    """

    prompt_index: int
    completion_ids: list[int]
    logprobs: list[float]
    stop_reason: StopReason
    weight_version: int
    scored_version: int
    sampling: Sampling
    head_ids: list[list[int]] | None = None
    head_logprobs: list[list[float]] | None = None


class RolloutEngine(Protocol):
    def generate(
        self, prompt_ids: Sequence[Sequence[int]], n: int, sampling: Sampling, seed: int, head: int = 0
    ) -> list[Rollout]:
        """`n` completions of each prompt, grouped by prompt and in its order: P x n rollouts.

        `head` asks for that many of the sampler's most likely tokens at each position.

        A completion depends on the seed, the prompt's index and its sample index, not on how rows were
        batched.
        """
        ...

    def load_weights(self, tensors: Mapping[str, "Tensor"], version: int) -> None: ...

    def distribution(self, batch: "TokenBatch", temperature: float) -> "Distribution":
        """The distributions of the loaded weights at the batch's positions, computed as they are read."""
        ...


@dataclass(frozen=True)
class Forward:
    """What a model says of a micro-batch; `values_BT` are a critic's, where there is one."""

    logits_BTV: "Tensor"
    values_BT: "Tensor | None" = None


@dataclass(frozen=True)
class Scores:
    """Of a whole batch under the weights as they are, without a graph; 0 where the mask is false."""

    logprobs_BT: "Tensor"
    values_BT: "Tensor | None" = None


MicroBatchLoss = Callable[[Forward, "TokenBatch"], "Tensor"]
"""(the forward pass of a micro-batch, the micro-batch) -> its share of the batch's loss, a scalar.

The loss divides by counts of the whole batch, so that the sum over micro-batches is the batch's loss and its
gradient does not depend on the split.
"""


class Trainer(Protocol):
    model: Any
    """The Hugging Face model that is trained; a stage exports it at its end."""

    def step(self, terms: Sequence[tuple["TokenBatch", MicroBatchLoss]]) -> float:
        """One optimizer step on the sum of the terms; returns the gradient's norm before clipping."""
        ...

    def score(self, batch: "TokenBatch", temperature: float) -> Scores:
        """Log-probs of the batch's targets at this temperature, and the critic's values."""
        ...

    def weights(self) -> Mapping[str, "Tensor"]: ...

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...
