"""A model's next-token distributions at the positions of a batch; its logits exist a block at a time."""

from typing import Any

import torch

from stages.engines.batch import TokenBatch
from stages.errors import GuardError
from stages.estimators.distribution import FromHidden


@torch.no_grad()
def distribution_of(model: Any, batch: TokenBatch, temperature: float) -> FromHidden:
    """Raises GuardError for a model that changes its logits after the output embedding."""
    if getattr(model.config, "final_logit_softcapping", None):
        raise GuardError(
            f"{type(model).__name__} caps its logits, so they cannot be computed from hidden states a block "
            "at a time: set centering.kind to head, or take another model"
        )
    hidden_BTH = model.base_model(
        batch.input_BT, attention_mask=batch.attention_BT, use_cache=False
    ).last_hidden_state
    return FromHidden(hidden_BTH, model.get_output_embeddings(), temperature)
