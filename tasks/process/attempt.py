"""One attempt of a stage as a process: its end becomes a return, or the error that says what happened."""

import signal
from collections.abc import Callable
from pathlib import Path

from data_contracts.breach import ContractBreach
from data_contracts.durable import write_atomic
from stages.errors import ExitCode, PosttrainError, StageStopped
from stages.spec import Event, EventKind, StageSpec
from tasks.process import signals
from tasks.process.command import stage_command, stage_environment
from tasks.process.supervisor import supervise


class StageFailed(PosttrainError):
    """A stage's process ended with an error; the log has the traceback."""

    def __init__(self, sentence: str, log: Path, exit_code: int = ExitCode.FAILED) -> None:
        self.log = log
        self.exit_code = ExitCode(exit_code)
        super().__init__(f"{sentence} (log: {log})")


class StageBreachedContract(ContractBreach):
    """A stage refused what it read or wrote; the sentence is the one it gave."""

    def __init__(self, sentence: str) -> None:
        Exception.__init__(self, sentence)
        self.contract = ""
        self.breaches = []
        self.stage = ""


def run_attempt(spec: StageSpec, log: Path, on_event: Callable[[Event], None]) -> None:
    """Run the stage in its own process until it is done.

    Raises StageStopped when it stopped resumably, ContractBreach when it refused data, StageFailed otherwise.
    """
    spec_file = spec.work / "spec.json"
    write_atomic(spec_file, spec.model_dump_json(indent=1))
    failure: list[Event] = []

    def listen(event: Event) -> None:
        if event.kind is EventKind.FAILED:
            failure.append(event)
        on_event(event)

    code = supervise(
        stage_command(spec_file, spec.runtime),
        environment=stage_environment(spec.stage, spec.runtime),
        log=log,
        on_event=listen,
    )
    if code == ExitCode.OK:
        return
    said = failure[-1].text if failure else None
    if code == ExitCode.STOPPED:
        raise StageStopped(f"{spec.node} stopped at a step boundary and can be resumed")
    if code == ExitCode.CONTRACT_BREACHED:
        raise StageBreachedContract(f"{spec.node}: {said or f'a contract is breached (log: {log})'}")
    if code < 0 and signals.stop_asked():
        raise StageStopped(f"{spec.node} was killed; it resumes from its last saved step")
    raise StageFailed(f"{spec.node} failed: {said or _end(code, log)}", log, _known(code))


def _known(code: int) -> ExitCode:
    return ExitCode(code) if code in list(ExitCode) else ExitCode.FAILED


def _end(code: int, log: Path) -> str:
    """What can be said of a process that ended without saying what failed."""
    if code == -signal.SIGKILL:
        return "its process was killed by SIGKILL, perhaps for want of memory; run again to resume"
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    last = f": {lines[-1].strip()}" if lines else ""
    return f"its process ended with code {code}{last}"
