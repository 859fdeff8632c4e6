"""Distributions from hidden states against the model's own logits, and models without such a way."""

import pytest
import torch
from transformers import LlamaForCausalLM

from stages.engines.batch import completion_batch
from stages.engines.hidden import distribution_of, require_plain_output
from stages.errors import GuardError

BATCH = completion_batch([[5, 2], [3, 4, 6]], [[7, 2, 4, 1], [5, 9]], pad_id=0)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_distributions_are_those_of_the_models_logits(model, temperature):
    places_N = BATCH.mask_BT.reshape(-1).nonzero().squeeze(1)
    found = distribution_of(model, BATCH, temperature)
    with torch.no_grad():
        logits_BTV = model(BATCH.input_BT, attention_mask=BATCH.attention_BT).logits
    expected_NV = (logits_BTV.flatten(0, 1)[places_N] / temperature).log_softmax(-1)
    torch.testing.assert_close(found.logprobs_NV(places_N), expected_NV, rtol=0, atol=1e-5)
    assert not found.states_BTD.requires_grad


def test_a_plain_model_is_taken_however_large_its_logits(model):
    require_plain_output(model)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(1e3)
    require_plain_output(model)


class Blurred(LlamaForCausalLM):
    """An output that is off by rounding, as another kernel's would be."""

    def forward(self, *args, **kwargs):
        found = super().forward(*args, **kwargs)
        found.logits = found.logits * (1 + 1e-5)
        return found


class Scaled(LlamaForCausalLM):
    def forward(self, *args, **kwargs):
        found = super().forward(*args, **kwargs)
        found.logits = found.logits * 0.9
        return found


class Capped(LlamaForCausalLM):
    def forward(self, *args, **kwargs):
        found = super().forward(*args, **kwargs)
        cap = float(found.logits.abs().max())
        found.logits = cap * torch.tanh(found.logits / cap)
        return found


@pytest.mark.parametrize("kind", [Scaled, Capped])
def test_logits_that_are_scaled_or_capped_are_refused(model, kind):
    with pytest.raises(GuardError, match=f"{kind.__name__} scales or caps its logits after the output layer"):
        require_plain_output(kind(model.config))


def test_rounding_is_no_reason_to_refuse(model):
    require_plain_output(Blurred(model.config))
