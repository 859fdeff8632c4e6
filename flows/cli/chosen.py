"""The run that a command is about: `RUN`, or `--last`."""

from stages.errors import UsageError
from tasks.runs import Run, latest, load
from tasks.store.home import Home


def chosen_run(home: Home, run_id: str | None, last: bool, command: str) -> Run:
    """Raises UsageError unless exactly one of the two is given, or the run is not there."""
    if (run_id is None) is not last:
        raise UsageError(f"name one run: `posttrain {command} RUN` or `posttrain {command} --last`")
    return latest(home) if run_id is None else load(home, run_id)
