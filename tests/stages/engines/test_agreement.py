"""An engine that does not hold the trainer's weights is noticed; one that does passes."""

import pytest
import torch

from stages.engines.agreement import Agreement
from stages.errors import PosttrainError

MASK = torch.tensor([[True, True, False]])


def test_the_gap_is_the_mean_over_unmasked_tokens_of_all_micro_batches() -> None:
    agreement = Agreement()
    agreement.add(torch.tensor([[-1.0, -2.0, -9.0]]), torch.tensor([[-1.1, -2.0, 0.0]]), MASK)
    agreement.add(torch.tensor([[-1.0]]), torch.tensor([[-0.5]]), torch.tensor([[True]]))
    assert agreement.gap == pytest.approx((0.1 + 0.0 + 0.5) / 3)


@pytest.mark.parametrize("recorded", [-1.002, float("nan")])
def test_a_gap_beyond_the_limit_or_not_a_number_is_refused(recorded: float) -> None:
    agreement = Agreement()
    agreement.add(torch.tensor([[-1.0]]), torch.tensor([[recorded]]), torch.tensor([[True]]))
    with pytest.raises(PosttrainError, match="step 7"):
        agreement.require(1e-3, step=7)


def test_equal_weights_agree() -> None:
    agreement = Agreement()
    agreement.add(torch.tensor([[-1.0]]), torch.tensor([[-1.0]]), torch.tensor([[True]]))
    agreement.require(1e-3, step=1)
    assert agreement.gap == 0.0
