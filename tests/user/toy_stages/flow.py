"""A two-node flow of toy stages, also as a program: `python -m toy_stages.flow [--wait S] [--force NODE]`.

The home is POSTTRAIN_HOME. Prints the digests of the last node's outputs as JSON; exit codes are posttrain's.
"""

import argparse
import json
import sys

from stages.errors import PosttrainError
from stages.spec import Runtime
from tasks.run_session import RunSession, start
from tasks.stage import stage
from tasks.store.home import Home
from tasks.store.manifest import Outputs
from toy_stages.counter.params import CounterParams

RUNTIME = Runtime(threads=1, save_every_s=1e-6)  # every step is saved


def two_counters(first: CounterParams | None = None, second: CounterParams | None = None) -> Outputs:
    one = stage("one", first or CounterParams())
    return stage("two", second or CounterParams(steps=5), before=one["sum"])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--wait", type=float, default=0.0)
    parser.add_argument("--force", action="append", default=[])
    arguments = parser.parse_args()
    run = start(Home.from_environment(), "two-counters", runtime=RUNTIME, forced=arguments.force)
    session = RunSession(run, wait_s=arguments.wait)
    try:
        with session.active():
            outputs = two_counters()
    except PosttrainError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps({name: ref.digest for name, ref in outputs.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
