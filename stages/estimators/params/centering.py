"""Score centering (arXiv 2609.20807): the mean of the weighted score under the sampler is subtracted."""

from typing import Annotated, Literal

from pydantic import Field, Tag

from stages.estimators.params.choice import Choice, kinds


class FullVocabulary(Choice):
    """The sampler's whole distribution, recomputed with its own weights a block of positions at a time."""

    kind: Literal["full_vocabulary"] = "full_vocabulary"


class Head(Choice):
    """The sampler's k most likely tokens, as it recorded them; the rest is modelled as proportional."""

    kind: Literal["head"] = "head"
    k: int = Field(128, ge=1)


Centering = Annotated[
    Annotated[FullVocabulary, Tag("full_vocabulary")] | Annotated[Head, Tag("head")],
    kinds("full_vocabulary", "head"),
]
