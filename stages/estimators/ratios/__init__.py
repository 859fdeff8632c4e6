"""Importance ratios of two policies at sampled tokens: levels, regularisers, and what must be on record."""

from stages.estimators.ratios.level import MAX_LOG_RATIO, LogRatio, ratio_log_BT
from stages.estimators.ratios.metrics import RatioSums, observe
from stages.estimators.ratios.record import (
    Behaviour,
    Recomputed,
    require_drawn,
    require_recomputed,
    require_same_distribution,
)
from stages.estimators.ratios.regularise import (
    Weights,
    batch_normalised_BT,
    touched,
    vetoed_rows_B,
    weight,
    weighted_mass_NV,
    weights_BT,
)
from stages.estimators.ratios.staleness import fresh_groups_P
from stages.estimators.ratios.support import on_support_NV

__all__ = [
    "MAX_LOG_RATIO",
    "Behaviour",
    "LogRatio",
    "RatioSums",
    "Recomputed",
    "Weights",
    "batch_normalised_BT",
    "fresh_groups_P",
    "observe",
    "on_support_NV",
    "ratio_log_BT",
    "require_drawn",
    "require_recomputed",
    "require_same_distribution",
    "touched",
    "vetoed_rows_B",
    "weight",
    "weighted_mass_NV",
    "weights_BT",
]
