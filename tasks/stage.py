"""What a flow calls: `stage(node, params, **inputs)`."""

from stages.declaration import StageParams
from tasks.session import Session, answering
from tasks.store.manifest import Outputs, Ref
from tasks.worker import from_environment


def stage(node: str, params: StageParams, **inputs: Ref) -> Outputs:
    """The outputs of a node of the flow, by name: reused, resumed or made now; or, in a plan, foreseen.

    `node` names this use of the stage (`evaluate.sft`) for status, `--from` and `--force`. The stage is the
    one whose `params.py` holds the class of `params`. Raises UsageError for inputs that the stage does not
    declare.
    """
    session: Session = answering() or from_environment()
    return session.stage(node, params, inputs)
