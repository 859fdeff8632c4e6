"""Prefect sees each node as a task, in state `Reused` when the store had its result; the store decides that.

Prefect's cache and result storage stay off: task arguments and results are names, keys and references.
Outside of a flow run there is nobody to tell, and the node is performed as it is.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from tasks.execute import Request
from tasks.store.manifest import Outputs, Ref

if TYPE_CHECKING:
    from tasks.executing import ExecutingSession


@dataclass(frozen=True)
class FlowRun:
    """The Prefect flow run that this code runs in."""

    id: str
    attempt: int
    flow: str
    parameters: Mapping[str, Any] = field(compare=False)


def flow_run() -> FlowRun | None:
    if "prefect" not in sys.modules:
        return None
    from prefect.context import FlowRunContext

    context = FlowRunContext.get()
    if context is None or context.flow_run is None or context.flow is None:
        return None
    run = context.flow_run
    return FlowRun(str(run.id), run.run_count, context.flow.name, context.parameters or {})


def through_prefect(session: "ExecutingSession", request: Request) -> Outputs:
    """Perform the node as a task of the flow run under way. Raises what `execute` raises."""
    if flow_run() is None:
        return session.perform(request.node).manifest.refs()
    inputs = {name: ref.model_dump(mode="json") for name, ref in request.inputs.items()}
    state = _stage_task()(request.node, request.stage, request.key, inputs, return_state=True)
    return {name: Ref.model_validate(ref) for name, ref in state.result().items()}


@cache
def _stage_task() -> Any:
    from prefect import task
    from prefect.cache_policies import NO_CACHE
    from prefect.states import State, StateType

    from tasks.executing import ExecutingSession
    from tasks.session import current

    @task(name="stage", task_run_name="{node}", cache_policy=NO_CACHE, persist_result=False)
    def stage(node: str, stage: str, key: str, inputs: dict[str, dict[str, Any]]) -> Any:
        session = current()
        assert isinstance(session, ExecutingSession)
        result = session.perform(node)
        made = result.manifest
        return State(
            type=StateType.COMPLETED,
            name="Reused" if result.reused else "Completed",
            message=f"{stage} {key[:12]} -> {made.digest[:19]}",
            data={name: ref.model_dump(mode="json") for name, ref in made.refs().items()},
        )

    return stage
