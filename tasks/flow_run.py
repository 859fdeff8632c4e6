"""The Prefect flow run that this code runs in, if any; asks Prefect only where it is imported already."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class FlowRun:
    """`attempt` counts Prefect's retries of the flow run from 1."""

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
