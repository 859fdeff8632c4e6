"""A model that is only asked: the teacher of a distillation, the reference of a KL penalty."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from stages.engines.agreement import recomputed_logprobs_BT
from stages.engines.batch import TokenBatch
from stages.engines.device import device
from stages.engines.hidden import distribution_of, require_plain_output
from stages.estimators.distribution import FromHidden


class FrozenModel:
    """The weights of a checkpoint folder, in float32, never trained; see `require_plain_output`."""

    def __init__(self, folder: Path, micro_batch_rows: int) -> None:
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.model = model.to(device()).eval()
        self.micro_batch_rows = micro_batch_rows
        require_plain_output(self.model)

    def distribution(self, batch: TokenBatch, temperature: float) -> FromHidden:
        """See `distribution_of`."""
        return distribution_of(self.model, batch, temperature)

    @torch.no_grad()
    def target_logprobs_BT(self, batch: TokenBatch, temperature: float) -> Tensor:
        """Log-probs of the batch's targets, 0 where the mask is false."""
        logprobs_BT = torch.zeros(batch.mask_BT.shape)
        for micro in batch.to(self.model.device).micro_batches(self.micro_batch_rows):
            told_BT = recomputed_logprobs_BT(self.distribution(micro, temperature), micro)
            logprobs_BT[micro.rows_B.cpu(), : told_BT.shape[1]] = told_BT.cpu()
        return logprobs_BT
