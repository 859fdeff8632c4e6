"""The replay term of EliteReplay: negative log-likelihood of the archived elites, one per distinct strategy.

It is the forward KL from a target uniform over a prompt's elites, whatever their frequency in the base.
It never enters group statistics or importance-ratio metrics.
"""

from collections import Counter
from collections.abc import Sequence

from torch import Tensor

from stages.errors import GuardError
from stages.estimators.losses import sequence_mean_B


def replay_nll_B(logprobs_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Per elite, the mean negative log-probability of its tokens, in nats.

    Raises GuardError if an elite has no token.
    """
    if not mask_BT.bool().any(-1).all():
        raise GuardError("an elite has no token to replay: its mask is empty")
    return sequence_mean_B(-logprobs_BT, mask_BT)


def elite_weights(prompt_ids: Sequence[str]) -> list[float]:
    """The weight of each elite: prompts count alike, and the elites of one prompt count alike. They sum to 1.

    `prompt_ids` are those of the whole batch, one per elite, in any order; a micro-batch takes its share of
    the weights, so that the gradient does not depend on the split.
    """
    elites = Counter(prompt_ids)
    return [1.0 / (len(elites) * elites[prompt]) for prompt in prompt_ids]
