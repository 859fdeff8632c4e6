"""Draws a number per step and folds it into a sum: a resumed run equals an uninterrupted one only if the sum,
the generator and the trace are all restored. The environment tells it how to misbehave at a step."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from data_contracts.breach import Breach, ContractBreach
from stages.context import StageContext
from stages.errors import GuardError
from toy_stages.counter.params import CounterParams


class State:
    def __init__(self, seed: int, total: int) -> None:
        self.random = random.Random(seed)
        self.total = total
        self.trace: list[int] = []

    def save(self, folder: Path) -> None:
        version, internal, gauss = self.random.getstate()
        content = {"random": [version, list(internal), gauss], "total": self.total, "trace": self.trace}
        (folder / "state.json").write_text(json.dumps(content))

    def load(self, folder: Path) -> None:
        content = json.loads((folder / "state.json").read_text())
        version, internal, gauss = content["random"]
        self.random.setstate((version, tuple(internal), gauss))
        self.total, self.trace = content["total"], content["trace"]


def run(ctx: StageContext[CounterParams]) -> None:
    begin = int((ctx.input("before") / "sum.txt").read_text()) if ctx.has_input("before") else 0
    state = State(ctx.seed("counter"), begin)
    print(f"attempt {ctx.attempt} of {ctx.node}")
    for step in ctx.steps(ctx.params.steps, state):
        misbehave(step, ctx)
        state.trace.append(state.random.randrange(ctx.params.modulus))
        state.total = (state.total * 31 + state.trace[-1]) % ctx.params.modulus
        ctx.log(step + 1, total=state.total)
    (ctx.output("sum") / "sum.txt").write_text(str(state.total))
    (ctx.output("trace") / "trace.json").write_text(json.dumps(state.trace))


def misbehave(step: int, ctx: StageContext[CounterParams]) -> None:
    time.sleep(float(os.environ.get("TOY_STEP_S", 0)))
    deed, _, at = os.environ.get("TOY_DEED", "").partition("@")
    spared = ctx.node != os.environ.get("TOY_NODE", ctx.node) or (
        os.environ.get("TOY_ONCE") and ctx.attempt > 1
    )
    if spared or not at or int(at) != step:
        return
    match deed:
        case "raise":
            raise ValueError("the toy broke")
        case "refuse":
            raise GuardError("the toy refuses to count further")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(9)
        case "notice":
            ctx.notice("the toy fell back")
        case "breed":
            sleeper = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
            Path(os.environ["TOY_PIDS"]).write_text(f"{os.getpid()} {sleeper.pid}")
            time.sleep(600)
        case "breach":
            raise ContractBreach("toys/1", [Breach("sum", "is a number", ("row 3",))])
        case "scribble":
            ctx.output("unknown")
        case "link":
            (ctx.output("sum") / "link").symlink_to("/etc/hostname")
        case "starve":
            (ctx.output("sum") / "sum.txt").unlink(missing_ok=True)
            raise OSError(errno.ENOSPC, "No space left on device")
        case "signal":
            Path(os.environ["TOY_PIDS"]).write_text(str(os.getpid()))
            while not ctx._stop_asked:
                time.sleep(0.01)
