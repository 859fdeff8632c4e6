"""`posttrain resume`: go on with a run that stopped, failed or died."""

import shlex

from flows.cli import options
from flows.cli.chosen import chosen_run
from flows.cli.console import say


def resume(run_id: options.RunId = None, last: options.Last = False, as_json: options.Json = False) -> None:
    """Go on with a run, with the recipe that it began with.

    Finished nodes are reused, the one in the middle continues from its last saved step. A run whose process
    is still alive is left alone.
    """
    from flows.cli.job import Job, carry_out
    from stages.errors import UsageError
    from tasks.runs import RunKind, RunState
    from tasks.store.home import Home

    home = Home.from_environment()
    run = chosen_run(home, run_id, last, "resume")
    if (owner := run.owner()) is not None:
        raise UsageError(f"run {run.id} is alive: {owner}; stop it first with `posttrain cancel {run.id}`")
    if run.state() is RunState.CRASHED:
        run.close(RunState.CRASHED, "its process died")
        say(f"run {run.id} is marked as crashed: its process is gone")
    record = run.record()
    if record.state is RunState.COMPLETED:
        say(f"run {run.id} is completed: there is nothing to go on with")
        return
    if record.kind is not RunKind.FLOW:
        raise UsageError(f"run {run.id} is no flow's; give its command again: {shlex.join(record.argv)}")

    def prepare() -> Job:
        from flows.catalogue import find
        from flows.recipe import Loaded

        entry = find(record.flow)
        recipe = entry.recipe_class.model_validate(record.recipe)
        loaded = Loaded(recipe, record.profile or "", record.sources)
        return Job(entry, loaded, frozenset(record.forced), record.from_node, run)

    carry_out(home, prepare, as_json=as_json)
