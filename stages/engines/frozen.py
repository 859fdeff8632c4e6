"""A model that is only asked: the teacher of a distillation, the reference of a KL penalty."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from stages.engines.batch import TokenBatch
from stages.engines.device import device
from stages.engines.hidden import distribution_of
from stages.estimators.blockwise import target_logprobs_BT
from stages.estimators.distribution import FromHidden


class FrozenModel:
    """The weights of a checkpoint folder, in float32, never trained."""

    def __init__(self, folder: Path) -> None:
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.model = model.to(device()).eval()

    def distribution(self, batch: TokenBatch, temperature: float) -> FromHidden:
        """See `distribution_of`."""
        return distribution_of(self.model, batch, temperature)

    @torch.no_grad()
    def target_logprobs_BT(self, batch: TokenBatch, temperature: float) -> Tensor:
        """Log-probs of the batch's targets, 0 where the mask is false."""
        logits: Tensor = self.model(batch.input_BT, attention_mask=batch.attention_BT, use_cache=False).logits
        return target_logprobs_BT(logits, batch.target_BT, batch.mask_BT, temperature)
