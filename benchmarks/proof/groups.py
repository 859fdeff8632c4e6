"""Every group of G samples of an enumerable policy, as a batch of P = S ** G prompts with its probabilities.

An advantage that sees its own group only takes all of them in one call, and its expected gradient is exact.
"""

from itertools import product

import torch
from torch import Tensor

from benchmarks.proof.tabular import Tabular, flat


class EveryGroup:
    """`places_PG`: which sequence each sample is. `probability_P`: of drawing the group, sums to 1."""

    def __init__(self, policy: Tabular, size: int) -> None:
        self.policy, self.size = policy, size
        self.places_PG = torch.tensor(list(product(range(len(policy.tokens_ST)), repeat=size)))
        self.probability_P = policy.probability_S()[self.places_PG].prod(1)
        self.all_PG = torch.ones_like(self.places_PG, dtype=torch.bool)

    def rewards_PG(self, reward_S: Tensor) -> Tensor:
        return reward_S[self.places_PG]

    def expected_gradient(self, values_PG: Tensor) -> Tensor:
        """Of the loss -mean over the group of advantage x log-prob of the sequence, flat."""
        logprob_S = self.policy.logprobs_ST().sum(1)
        loss_P = -(values_PG * logprob_S[self.places_PG]).sum(1) / self.size
        return flat(self.policy.gradient((self.probability_P * loss_P).sum()))
