"""When a validation score has stopped rising: a pure state machine, so that a resumed run decides the same.

An evaluation counts as a gain when it exceeds the best counted so far by more than max(delta, one standard
error). Small gains add up until they count, so a line that rises by more than that in `patience` evaluations
never stops; `patience` evaluations in a row without a gain are a plateau.
"""

import math
from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from stages.errors import GuardError


class Decision(StrEnum):
    CONTINUE = "continue"
    PLATEAU = "plateau"
    MAX_STEPS = "max_steps"


class Plateau(BaseModel):
    """When to stop. Steps are training steps; patience counts evaluations, also those before `min_steps`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    delta: float = Field(0.01, ge=0, description="smallest gain of the score that counts")
    patience: int = Field(3, ge=1, description="evaluations in a row without a gain")
    min_steps: int = Field(0, ge=0, description="training steps before which none is a plateau")


class PlateauState(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int | None = None
    best: float | None = None
    best_step: int | None = None
    without_gain: int = 0


class PlateauDetector:
    """`max_steps` is where training ends anyway."""

    def __init__(self, plateau: Plateau, max_steps: int, state: PlateauState | None = None) -> None:
        self.plateau = plateau
        self.max_steps = max_steps
        self.state = state or PlateauState()

    def update(self, step: int, score: float, standard_error: float) -> Decision:
        """Take one evaluation at `step` training steps and decide.

        Raises GuardError if steps do not rise or if a number is not finite.
        """
        state = self.state
        if state.step is not None and step <= state.step:
            raise GuardError(f"evaluations must come in order of steps: {step} after {state.step}")
        if not math.isfinite(score) or not math.isfinite(standard_error) or standard_error < 0:
            raise GuardError(
                f"score {score} with standard error {standard_error} at step {step} is not a measurement"
            )
        if state.best is None or score > state.best + max(self.plateau.delta, standard_error):
            self.state = PlateauState(step=step, best=score, best_step=step, without_gain=0)
        else:
            self.state = state.model_copy(update={"step": step, "without_gain": state.without_gain + 1})
        if step >= self.plateau.min_steps and self.state.without_gain >= self.plateau.patience:
            return Decision.PLATEAU
        return Decision.MAX_STEPS if step >= self.max_steps else Decision.CONTINUE

    def to_json(self) -> str:
        return self.state.model_dump_json()

    @classmethod
    def from_json(cls, plateau: Plateau, max_steps: int, text: str) -> Self:
        return cls(plateau, max_steps, PlateauState.model_validate_json(text))
