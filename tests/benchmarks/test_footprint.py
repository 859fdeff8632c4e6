"""The losses whose cost is measured are real ones."""

import pytest
import torch

from benchmarks.proof.footprint import LOSSES, PLAIN, Given, _given
from stages.estimators.losses import policy_gradient_BT


@pytest.fixture
def given() -> Given:
    torch.manual_seed(0)
    return _given(2, 3, 200)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_moves_the_logits(name: str, given: Given) -> None:
    logits_BTV = torch.randn(2, 3, 200, requires_grad=True)
    LOSSES[name](logits_BTV, given).backward()
    assert logits_BTV.grad is not None and bool(logits_BTV.grad.isfinite().all())
    assert float(logits_BTV.grad.norm()) > 0


def test_the_yardstick_is_the_policy_gradient_without_a_ratio(given: Given) -> None:
    logits_BTV = torch.randn(2, 3, 200)
    logprobs_BT = given.logprobs_BT(logits_BTV)
    loss_BT = policy_gradient_BT(
        logprobs_BT, torch.ones_like(logprobs_BT), given.advantages_BT, given.mask_BT
    )
    assert torch.allclose(LOSSES[PLAIN](logits_BTV, given), given.token_mean(loss_BT))
