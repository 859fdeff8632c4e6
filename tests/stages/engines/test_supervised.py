"""Cross-entropy against torch's own, whole and in micro-batches."""

import pytest
import torch

from stages.engines.batch import completion_batch
from stages.engines.protocol import Forward
from stages.engines.supervised import cross_entropy

BATCH = completion_batch([[5, 2], [3, 4, 6], [1]], [[7, 2, 4, 1], [5], [6, 6]], pad_id=0)
LOGITS = torch.randn(3, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_is_the_mean_over_the_targets_of_the_whole_batch(rows):
    logits, plain = LOGITS.clone().requires_grad_(), LOGITS.clone().requires_grad_()
    shares: list[float] = []
    loss = cross_entropy(BATCH, shares)
    for micro in BATCH.micro_batches(rows):
        loss(Forward(logits[micro.rows_B, : micro.mask_BT.shape[1]]), micro).backward()
    expected = torch.nn.functional.cross_entropy(plain[BATCH.mask_BT], BATCH.target_BT[BATCH.mask_BT])
    expected.backward()
    assert sum(shares) == pytest.approx(expected.item(), abs=1e-12)
    assert len(shares) == len(list(BATCH.micro_batches(rows)))
    torch.testing.assert_close(logits.grad, plain.grad, rtol=0, atol=1e-12)
