"""`python -m stages SPEC.json`: the process of one stage attempt.

It dies with its owner, stops at a step boundary on SIGTERM (exit 75), and says what failed in one sentence;
a traceback goes to the stage's log.
"""

import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from data_contracts.breach import ContractBreach
from stages.context import StageContext
from stages.declaration import declaration, stage_package
from stages.errors import ExitCode, PosttrainError, StageStopped, UsageError
from stages.events import Events
from stages.owner import die_with
from stages.spec import OWNER_PID, EventKind, StageSpec

M = TypeVar("M", bound=BaseModel)


def main(spec_file: str) -> int:
    die_with(int(os.environ.get(OWNER_PID, os.getppid())))
    events = Events()
    try:
        run(Path(spec_file), events)
    except StageStopped as stopped:
        print(stopped, file=sys.stderr)
        return ExitCode.STOPPED
    except (PosttrainError, ContractBreach) as refused:
        traceback.print_exc()
        events.emit(EventKind.FAILED, text=str(refused))
        return refused.exit_code
    except Exception as failed:
        traceback.print_exc()
        events.emit(EventKind.FAILED, text=f"{type(failed).__name__}: {failed}")
        return ExitCode.FAILED
    return ExitCode.OK


def run(spec_file: Path, events: Events) -> None:
    spec = validated(StageSpec, spec_file.read_text(), spec_file.name)
    stage = declaration(spec.stage)
    params = validated(stage.params, spec.params, f"the parameters of {spec.node}")
    ctx = StageContext(spec, params, events)
    ctx.listen_for_stop()
    ctx.emit(EventKind.STARTED)
    importlib.import_module(f"{stage_package(spec.stage)}.stage").run(ctx)


def validated(model: type[M], given: object, what: str) -> M:
    """`given` is JSON text or values. Raises UsageError, which names each field that is not as it must be."""
    try:
        return model.model_validate_json(given) if isinstance(given, str) else model.model_validate(given)
    except ValidationError as error:
        found = error.errors(include_url=False)
        told = (f"{'.'.join(map(str, one['loc'])) or 'all of it'}: {one['msg']}" for one in found)
        raise UsageError(f"{what} did not validate: {'; '.join(told)}") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
