"""PPO's advantages from a critic: generalised advantage estimation over the trained tokens only.

A step of the decision process is a token that the policy wrote (mask true). Tokens in between that a tool or
the environment wrote are skipped: values carry over them and nothing is discounted there. Beyond a row's last
trained token the value is 0, for a truncated completion too.
"""

import torch
from torch import Tensor, zeros_like

from stages.errors import GuardError


def gae_BT(
    rewards_BT: Tensor, values_BT: Tensor, mask_BT: Tensor, discount: float, trace: float
) -> tuple[Tensor, Tensor]:
    """GAE (arXiv 1506.02438, Eq. 16): advantage_t = sum over l of (discount trace)^l delta_(t+l).

    delta_t = reward_t + discount value_(t+1) - value_t, where t counts a row's trained tokens. `values_BT` at
    a token is the value of the prefix before it. Returns advantages and returns = advantage + value, both
    [B, T], detached, 0 outside the mask. trace = 1 with discount = 1: reward to come - value, whose expected
    policy gradient is the true one for any values; with trace < 1 only for the exact ones.

    Raises GuardError for shapes that differ, numbers outside (0, 1] and [0, 1], a reward outside the mask, or
    a reward or value inside it that is not finite.
    """
    if not rewards_BT.shape == values_BT.shape == mask_BT.shape or mask_BT.ndim != 2:
        raise GuardError(
            f"gae needs rewards, values and mask of one shape [rows, tokens], got {list(rewards_BT.shape)}, "
            f"{list(values_BT.shape)} and {list(mask_BT.shape)}"
        )
    if not (0 < discount <= 1 and 0 <= trace <= 1):
        raise GuardError(f"gae needs 0 < discount <= 1 and 0 <= trace <= 1, got {discount} and {trace}")
    rewards_BT, values_BT = rewards_BT.detach(), values_BT.detach()
    if not (rewards_BT[mask_BT].isfinite().all() and values_BT[mask_BT].isfinite().all()):
        raise GuardError("a trained token has a reward or value that is not finite: leave its row out")
    outside_N = rewards_BT[~mask_BT]
    if (outside_N.isfinite() & (outside_N != 0)).any():
        raise GuardError(
            "a token that is not trained has a reward, which would be lost: give it to a trained one, "
            "as terminal_rewards_BT does"
        )
    advantages_BT = zeros_like(values_BT)
    next_value_B = values_BT.new_zeros(len(values_BT))
    next_advantage_B = next_value_B
    for t in reversed(range(values_BT.shape[1])):
        trained_B = mask_BT[:, t]
        delta_B = rewards_BT[:, t] + discount * next_value_B - values_BT[:, t]
        next_advantage_B = (delta_B + discount * trace * next_advantage_B).where(trained_B, next_advantage_B)
        next_value_B = values_BT[:, t].where(trained_B, next_value_B)
        advantages_BT[:, t] = next_advantage_B.where(trained_B, 0.0)
    return advantages_BT, advantages_BT + values_BT.where(mask_BT, 0.0)


def terminal_rewards_BT(rewards_B: Tensor, mask_BT: Tensor) -> Tensor:
    """A reward for the whole row, at its last trained token; 0 elsewhere. Shape [B, T].

    A row without a trained token holds no reward; it may be a placeholder of any value that is not finite.
    Raises GuardError for shapes that differ, a reward that is not finite, or one that has no token to go to.
    """
    if mask_BT.ndim != 2 or rewards_B.shape != mask_BT.shape[:1]:
        raise GuardError(
            f"terminal rewards need [rows] and a mask [rows, tokens], got {list(rewards_B.shape)} and "
            f"{list(mask_BT.shape)}"
        )
    trained_B = mask_BT.any(1)
    if not rewards_B[trained_B].isfinite().all():
        raise GuardError("a row has a reward that is not finite: mask its tokens out")
    homeless_N = rewards_B[~trained_B]
    if (homeless_N.isfinite() & (homeless_N != 0)).any():
        raise GuardError("a row without a trained token has a reward, which would be lost: leave the row out")
    steps_T = torch.arange(1, mask_BT.shape[1] + 1, device=mask_BT.device)
    last_B1 = (mask_BT * steps_T).amax(1, keepdim=True)
    return rewards_B.unsqueeze(1).where(mask_BT & (steps_T == last_B1), 0.0)


def value_loss_BT(values_BT: Tensor, returns_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Half the squared error of the value head against detached returns, per token; 0 outside the mask."""
    error_BT = (values_BT - returns_BT.detach()).where(mask_BT, 0.0)
    return 0.5 * error_BT.square()
