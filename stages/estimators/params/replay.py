"""Replay of elites (methods.md 1(b))."""

from typing import Annotated, Literal

from pydantic import Field, Tag

from stages.estimators.params.choice import Choice, kinds


class _Replay(Choice):
    coefficient: float = Field(0.1, ge=0, description="0 is no replay, bit for bit")
    elites_per_step: int = Field(16, ge=1)


class UniformReplay(_Replay):
    """Forward KL from the uniform distribution over a prompt's elites."""

    kind: Literal["uniform"] = "uniform"


class JensenShannonReplay(_Replay):
    """DPH-RL's term (arXiv 2509.07430): the Jensen-Shannon generator of policy / base at stored tokens."""

    kind: Literal["jensen_shannon"] = "jensen_shannon"


class FloorReplay(_Replay):
    """Only elites whose probability per token fell below a floor, weighted by floor / probability."""

    kind: Literal["below_floor"] = "below_floor"
    floor: float = Field(0.5, gt=0, lt=1, description="geometric mean of an elite's token probabilities")
    max_weight: float = Field(10.0, ge=1, description="cap of floor / probability; what it cuts is counted")


class NarrowReplay(_Replay):
    """Only for the step's prompts whose group shows fewer correct strategies than their archive has."""

    kind: Literal["where_narrow"] = "where_narrow"


ReplayChoice = UniformReplay | JensenShannonReplay | FloorReplay | NarrowReplay
Replay = Annotated[
    Annotated[UniformReplay, Tag("uniform")]
    | Annotated[JensenShannonReplay, Tag("jensen_shannon")]
    | Annotated[FloorReplay, Tag("below_floor")]
    | Annotated[NarrowReplay, Tag("where_narrow")],
    kinds("uniform", "jensen_shannon", "below_floor", "where_narrow"),
]
