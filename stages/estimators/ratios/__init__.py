"""Importance ratios of two policies at sampled tokens: levels, regularisers, and what must be on record."""

from stages.estimators.ratios.level import MAX_LOG_RATIO, LogRatio, ratio_log_BT
from stages.estimators.ratios.metrics import RatioSums, observe
from stages.estimators.ratios.regularise import (
    Weights,
    batch_normalised_BT,
    touched,
    vetoed_rows_B,
    weight,
    weighted_mass_NV,
    weights_BT,
)

__all__ = [
    "MAX_LOG_RATIO",
    "LogRatio",
    "RatioSums",
    "Weights",
    "batch_normalised_BT",
    "observe",
    "ratio_log_BT",
    "touched",
    "vetoed_rows_B",
    "weight",
    "weighted_mass_NV",
    "weights_BT",
]
