"""Distillation on the student's own samples."""

from typing import Annotated, Literal

from pydantic import Field, Tag

from stages.estimators.params.choice import Choice, kinds


class FullVocabularyKl(Choice):
    """KL(student || teacher) over the whole vocabulary at each sampled prefix."""

    kind: Literal["full_vocabulary"] = "full_vocabulary"


class TopKKl(Choice):
    """KL over the student's k most likely tokens and one bucket for the rest: at most the full one."""

    kind: Literal["top_k"] = "top_k"
    k: int = Field(64, ge=1)


class SampledKl(Choice):
    """log teacher - log student at the sampled token as a detached advantage: the same expected gradient."""

    kind: Literal["sampled"] = "sampled"


class VarianceReducedKl(Choice):
    """The sampled one minus its closed-form mean -KL (arXiv 2605.07865): the same expected gradient.

    Less variance where the teacher is near the student; not for every teacher.
    """

    kind: Literal["variance_reduced"] = "variance_reduced"


class ForwardKl(Choice):
    """KL(teacher || student) over the whole vocabulary at each sampled prefix: it covers modes."""

    kind: Literal["forward_kl"] = "forward_kl"


DistillationChoice = FullVocabularyKl | TopKKl | SampledKl | VarianceReducedKl | ForwardKl
Distillation = Annotated[
    Annotated[FullVocabularyKl, Tag("full_vocabulary")]
    | Annotated[TopKKl, Tag("top_k")]
    | Annotated[SampledKl, Tag("sampled")]
    | Annotated[VarianceReducedKl, Tag("variance_reduced")]
    | Annotated[ForwardKl, Tag("forward_kl")],
    kinds("full_vocabulary", "top_k", "sampled", "variance_reduced", "forward_kl"),
]
