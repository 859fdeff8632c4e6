"""A model's next-token distributions at the positions of a batch; its logits exist a block at a time."""

from typing import Any

import torch

from stages.engines.batch import TokenBatch
from stages.errors import GuardError
from stages.estimators.distribution import FromHidden

PROBE_IDS = ((0, 1),)
TOLERANCE = 1e-3  # relative to the largest logit; a scale or a cap of the logits is far beyond it


@torch.no_grad()
def distribution_of(model: Any, batch: TokenBatch, temperature: float) -> FromHidden:
    """softmax(output layer(hidden states) / temperature), of a model that `require_plain_output` accepts."""
    batch = batch.to(model.device)
    hidden_BTH = model.base_model(
        batch.input_BT, attention_mask=batch.attention_BT, use_cache=False
    ).last_hidden_state
    return FromHidden(hidden_BTH, model.get_output_embeddings(), temperature)


@torch.no_grad()
def require_plain_output(model: Any) -> None:
    """Raises GuardError unless the model's logits are its output layer's, neither scaled nor capped after it.

    Asked once of a model whose distribution will be computed a block of positions at a time.
    """
    ids = torch.tensor(PROBE_IDS, device=model.device)
    logits = model(ids, use_cache=False).logits.float()
    own = model.get_output_embeddings()(model.base_model(ids, use_cache=False).last_hidden_state).float()
    if not torch.allclose(own, logits, rtol=0, atol=TOLERANCE * float(logits.abs().max())):
        raise GuardError(
            f"{type(model).__name__} scales or caps its logits after the output layer, so its distribution "
            "cannot be computed from hidden states a block at a time: take another teacher, or for RL set "
            "centering.kind to head"
        )
