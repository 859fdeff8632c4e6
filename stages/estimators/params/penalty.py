"""The KL to the policy that the stage began with, named by the gradient that it has."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from stages.estimators.params.choice import Choice

WRONG_KL = {
    "k1": "k1 (log p - log ref) has expected gradient 0 as a loss: it teaches nothing",
    "k2": "k2 is named by its gradient here",
    "k3": "k3 has the gradient of the forward KL as a loss, not of the reverse one",
}


def _named_by_gradient(kind: Any) -> Any:
    if isinstance(kind, str) and kind in WRONG_KL:
        raise ValueError(f"{WRONG_KL[kind]}; set kind to reverse_kl, or to forward_kl if you mean that one")
    return kind


class KlPenalty(Choice):
    """Named by the expected gradient on samples of the policy, not by its value."""

    kind: Annotated[Literal["reverse_kl", "forward_kl"], BeforeValidator(_named_by_gradient)] = "reverse_kl"
    coefficient: float = Field(gt=0)
