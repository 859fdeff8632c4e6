"""The typed choices that make up an estimator; torch-free. `rules.py` says which do not go together.

A choice names an algorithm by its `kind`; a part without a kind is the default one with other numbers.
"""

from stages.estimators.params.advantage import (
    Advantage,
    AdvantageChoice,
    AllCorrect,
    DrGrpo,
    Gae,
    Grpo,
    ReinforcePlusPlus,
    ReinforcePlusPlusBaseline,
    Rloo,
    Scope,
    SignBalance,
)
from stages.estimators.params.aggregation import (
    Aggregation,
    AggregationChoice,
    FixedLength,
    SequenceMean,
    TokenMean,
)
from stages.estimators.params.centering import Centering, FullVocabulary, Head
from stages.estimators.params.distillation import (
    Distillation,
    DistillationChoice,
    ForwardKl,
    FullVocabularyKl,
    SampledKl,
    TopKKl,
    VarianceReducedKl,
)
from stages.estimators.params.estimator import EstimatorParams
from stages.estimators.params.loss import Cispo, Gspo, Loss, LossChoice, PolicyGradient, PpoClip
from stages.estimators.params.penalty import WRONG_KL, KlPenalty
from stages.estimators.params.ratio import (
    Clip,
    Level,
    Mask,
    Ratio,
    Regulariser,
    RegulariserChoice,
    Truncate,
    Uncorrected,
    Unregularised,
)
from stages.estimators.params.replay import (
    FloorReplay,
    JensenShannonReplay,
    NarrowReplay,
    Replay,
    ReplayChoice,
    UniformReplay,
)
from stages.estimators.params.sampling import DynamicSampling, Overlong

__all__ = [
    "WRONG_KL",
    "Advantage",
    "AdvantageChoice",
    "Aggregation",
    "AggregationChoice",
    "AllCorrect",
    "Centering",
    "Cispo",
    "Clip",
    "Distillation",
    "DistillationChoice",
    "DrGrpo",
    "DynamicSampling",
    "EstimatorParams",
    "FixedLength",
    "FloorReplay",
    "ForwardKl",
    "FullVocabulary",
    "FullVocabularyKl",
    "Gae",
    "Grpo",
    "Gspo",
    "Head",
    "JensenShannonReplay",
    "KlPenalty",
    "Level",
    "Loss",
    "LossChoice",
    "Mask",
    "NarrowReplay",
    "Overlong",
    "PolicyGradient",
    "PpoClip",
    "Ratio",
    "Regulariser",
    "RegulariserChoice",
    "ReinforcePlusPlus",
    "ReinforcePlusPlusBaseline",
    "Replay",
    "ReplayChoice",
    "Rloo",
    "SampledKl",
    "Scope",
    "SequenceMean",
    "SignBalance",
    "TokenMean",
    "TopKKl",
    "Truncate",
    "Uncorrected",
    "UniformReplay",
    "Unregularised",
    "VarianceReducedKl",
]
