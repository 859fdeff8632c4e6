"""The teacher of a distillation, which can be sent away and then refuses to speak."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from data_contracts.checkpoint import facts
from stages.engines.batch import TokenBatch
from stages.engines.device import device
from stages.errors import GuardError


class Teacher:
    def __init__(self, folder: Path) -> None:
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.model = model.to(device()).eval()
        self.calls = 0

    @torch.no_grad()
    def logits_BTV(self, batch: TokenBatch) -> Tensor:
        """Raises GuardError after `retire`: nothing may be distilled once the switch has been made."""
        if self.model is None:
            raise GuardError("the teacher was called after the switch: distillation has ended")
        self.calls += 1
        logits: Tensor = self.model(batch.input_BT, attention_mask=batch.attention_BT, use_cache=False).logits
        return logits

    def retire(self) -> None:
        """Drop the model; its memory is free and a later call is an error."""
        self.model = None


def require_same_tokenizer(policy: Path, teacher: Path) -> None:
    """Raises GuardError unless both read and write the same token ids."""
    if differing := facts(policy).differing(facts(teacher)):
        raise GuardError(
            f"the teacher must share the student's tokenizer; they differ in {', '.join(differing)}: "
            "its log-probs would be of other tokens"
        )
