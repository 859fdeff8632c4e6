"""What a sample's reward is worth: one estimator a function, each over the scorable samples only.

A sample without a verdict is not a sample with reward 0: it leaves means, deviations, counts and
denominators, and its own advantage is exactly 0.
"""

from stages.estimators.advantages.batch import reinforce_plus_plus, reinforce_plus_plus_baseline
from stages.estimators.advantages.gae import gae_BT, terminal_rewards_BT, value_loss_BT
from stages.estimators.advantages.groups import dr_grpo, grpo, rloo
from stages.estimators.advantages.overlong import overlong_penalty
from stages.estimators.advantages.result import Advantages
from stages.estimators.advantages.sign_balance import SignBalanced, signbalance

__all__ = [
    "Advantages",
    "SignBalanced",
    "dr_grpo",
    "gae_BT",
    "grpo",
    "overlong_penalty",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "rloo",
    "signbalance",
    "terminal_rewards_BT",
    "value_loss_BT",
]
