"""The teacher of a distillation, which can be sent away and then refuses to speak."""

from pathlib import Path

from data_contracts.checkpoint import facts
from stages.engines.batch import TokenBatch
from stages.engines.frozen import FrozenModel
from stages.errors import GuardError
from stages.estimators.distribution import Distribution


class Teacher:
    def __init__(self, folder: Path, micro_batch_rows: int) -> None:
        self.model: FrozenModel | None = FrozenModel(folder, micro_batch_rows)

    def distribution(self, batch: TokenBatch, temperature: float) -> Distribution:
        """Its next-token distributions at the batch's positions.

        Raises GuardError after `retire`: nothing may be distilled once the switch has been made.
        """
        if self.model is None:
            raise GuardError("the teacher was called after the switch: distillation has ended")
        return self.model.distribution(batch, temperature)

    def retire(self) -> None:
        """Drop the model; its memory is free and a later call is an error."""
        self.model = None


def require_same_tokenizer(policy: Path, teacher: Path) -> None:
    """Raises GuardError unless both read and write the same token ids."""
    if differing := facts(policy).differing(facts(teacher)):
        raise GuardError(
            f"the teacher must share the student's tokenizer; they differ in {', '.join(differing)}: "
            "its log-probs would be of other tokens"
        )
