"""`python -m stages SPEC.json`: the process of one stage attempt.

It dies with its owner, stops at a step boundary on SIGTERM (exit 75), and says what failed in one sentence;
a traceback goes to the stage's log.
"""

import ctypes
import importlib
import os
import signal
import sys
import traceback
from pathlib import Path

from data_contracts.breach import ContractBreach
from stages.context import StageContext
from stages.declaration import declaration, stage_package
from stages.errors import ExitCode, PosttrainError, StageStopped
from stages.spec import OWNER_PID, EventKind, StageSpec

PR_SET_PDEATHSIG = 1


def die_with_owner() -> None:
    """SIGKILL this process when its parent ends, however that happens (Linux)."""
    ctypes.CDLL("libc.so.6", use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    owner = os.environ.get(OWNER_PID)
    if owner is not None and os.getppid() != int(owner):  # it ended before the request was made
        sys.exit(ExitCode.FAILED)


def main(spec_file: str) -> int:
    die_with_owner()
    spec = StageSpec.model_validate_json(Path(spec_file).read_text())
    stage = declaration(spec.stage)
    ctx = StageContext(spec, stage.params.model_validate(spec.params))
    ctx.listen_for_stop()
    ctx.emit(EventKind.STARTED)
    try:
        importlib.import_module(f"{stage_package(spec.stage)}.stage").run(ctx)
    except StageStopped as stopped:
        print(stopped, file=sys.stderr)
        return ExitCode.STOPPED
    except (PosttrainError, ContractBreach) as refused:
        traceback.print_exc()
        ctx.emit(EventKind.FAILED, error=type(refused).__name__, text=str(refused))
        return refused.exit_code
    except Exception as failed:
        traceback.print_exc()
        ctx.emit(EventKind.FAILED, error=type(failed).__name__, text=f"{type(failed).__name__}: {failed}")
        return ExitCode.FAILED
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
