"""Prefect sees each node as a task, in state `Reused` when the store had its result; the store decides that.

Prefect's cache and result storage stay off: task arguments and results are names, keys and references.
Outside of a flow run there is nobody to tell, and the node is performed as it is.
"""

from collections.abc import Callable
from typing import Any

from tasks.execute import Request, Result
from tasks.flow_run import flow_run
from tasks.store.manifest import Outputs, Ref

Perform = Callable[[str], Result]  # makes or reuses the result of a node


def through_prefect(perform: Perform, request: Request) -> Outputs:
    """Perform the node as a task of the flow run under way. Raises what `perform` raises."""
    if flow_run() is None:
        return perform(request.node).manifest.refs()
    inputs = {name: ref.model_dump(mode="json") for name, ref in request.inputs.items()}
    state = _stage_task(perform)(request.node, request.stage, request.key, inputs, return_state=True)
    return {name: Ref.model_validate(ref) for name, ref in state.result().items()}


def _stage_task(perform: Perform) -> Any:
    from prefect import task
    from prefect.cache_policies import NO_CACHE
    from prefect.states import State, StateType

    @task(name="stage", task_run_name="{node}", cache_policy=NO_CACHE, persist_result=False)
    def stage(node: str, stage: str, key: str, inputs: dict[str, dict[str, Any]]) -> Any:
        result = perform(node)
        made = result.manifest
        return State(
            type=StateType.COMPLETED,
            name="Reused" if result.reused else "Completed",
            message=f"{stage} {key[:12]} -> {made.digest[:19]}",
            data={name: ref.model_dump(mode="json") for name, ref in made.refs().items()},
        )

    return stage
