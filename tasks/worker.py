"""The session of a flow that nobody gave one: under a Prefect worker, a retry by Prefect, or in a script.

The home comes from the environment, the recipe and its runtime from the flow's parameter `recipe`. A flow run
that is retried goes on with the run that the ledger has for it.
"""

import atexit
import os
from contextlib import ExitStack

from pydantic import BaseModel

from stages.spec import Runtime
from tasks import runs
from tasks.flow_run import FlowRun, flow_run
from tasks.run_session import RunSession, start
from tasks.runs import NodeState, Run, RunKind, RunState
from tasks.store.home import Home

WORKER_FLOW_RUN = "PREFECT__FLOW_RUN_ID"  # set by a worker for the process of a flow run

_sessions: dict[str, RunSession] = {}  # by flow run; "" is that of code outside of any


def from_environment() -> RunSession:
    """Raises StageBusy if another process works on the same flow run."""
    found = flow_run()
    known = _sessions.get(found.id if found else "")
    if known is not None:
        if found is None:
            known.begin_again()  # a script may use a node name as often as it likes
        return known
    run = _run(Home.from_environment(), found)
    session = RunSession(run)
    session.under_worker = WORKER_FLOW_RUN in os.environ
    ownership = ExitStack()
    ownership.enter_context(run.alive())
    run.reopen()
    atexit.register(_close, run, ownership)
    _sessions[found.id if found else ""] = session
    return session


def _run(home: Home, found: FlowRun | None) -> Run:
    if found is None:
        return start(home, "script", kind=RunKind.SCRIPT, runtime=Runtime.model_validate({}))
    for run in reversed(runs.every(home)):
        if run.record().flow_run_id == found.id:
            return run
    recipe = found.parameters.get("recipe")
    values = recipe.model_dump(mode="json") if isinstance(recipe, BaseModel) else dict(recipe or {})
    runtime = Runtime.model_validate(values.get("runtime", {}))
    return start(home, found.flow, runtime=runtime, recipe=values, flow_run_id=found.id)


def _close(run: Run, ownership: ExitStack) -> None:
    """At exit the run ends as its nodes did; who called `stage` is beyond our sight."""
    states = {record.state for record in run.nodes()}
    if states & {NodeState.FAILED, NodeState.CRASHED}:
        run.close(RunState.FAILED)
    elif states & {NodeState.STOPPED, NodeState.RUNNING}:
        run.close(RunState.STOPPED)
    else:
        run.close(RunState.COMPLETED)
    ownership.close()
