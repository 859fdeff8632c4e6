"""Does score centering hold a policy still where no reward depends on it, under a stale sampler?

`python -m benchmarks.stale_sampler` runs the stage rl for three seeds of each arm of
benchmarks/distractors/flow.py, prints a table and writes benchmarks/results/stale_sampler.json. It is a flow
over the store of POSTTRAIN_HOME: after a kill the same command goes on, and what is finished is reused.
`--profile ci` is a smaller version within a minute, and writes nothing.
"""

import argparse
import json
import logging
import statistics
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from benchmarks.distractors.flow import ARMS, CI, FULL, Profile, stale_sampler
from benchmarks.distractors.outcome import Outcome, measure, seconds
from benchmarks.provenance import provenance
from stages.errors import PosttrainError
from stages.spec import Runtime
from tasks.run_session import RunSession, start
from tasks.runs import RunKind
from tasks.store.home import Home
from tasks.store.objects import Store

RESULTS = Path(__file__).parent / "results" / "stale_sampler.json"
RUNTIME = Runtime(micro_batch_rows=256, sample_batch_rows=1024)

COLUMNS = {
    "KL": "kl",
    "after right": "kl_after_right",
    "after wrong": "kl_after_wrong",
    "right letters": "right",
    "KL of sampler": "sampler_kl",
    "ratios cut": "touched",
}


def lines(found: Mapping[str, list[Outcome]]) -> list[str]:
    """Mean and standard deviation over the seeds."""
    header = f"{'':14}" + "".join(f"{title:>17}" for title in COLUMNS)
    return [header] + [
        f"{arm:14}"
        + "".join(
            f"{spread(getattr(outcome, name) for outcome in outcomes):>17}" for name in COLUMNS.values()
        )
        for arm, outcomes in found.items()
    ]


def spread(values: Iterable[float]) -> str:
    numbers = list(values)
    deviation = f" ± {statistics.stdev(numbers):.3f}" if len(numbers) > 1 else ""
    return f"{statistics.fmean(numbers):.3f}{deviation}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", choices=("full", "ci"), default="full")
    profile = CI if parser.parse_args().profile == "ci" else FULL
    tell_progress()
    home = Home.from_environment()
    recipe = {"rl": profile.rl.model_dump(mode="json"), "seeds": list(profile.seeds)}
    run = start(home, "stale_sampler", kind=RunKind.SCRIPT, runtime=RUNTIME, recipe=recipe)
    try:
        with RunSession(run).active():
            made = stale_sampler(profile)
    except PosttrainError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    disable_progress_bar()
    found = measure(Store(home), made)
    took = seconds(Store(home), made)
    print("KL(end || start) at positions that no reward depends on, in nats; by the letter before them")
    print("\n".join(lines(found)))
    seeds = f"seeds {', '.join(map(str, profile.seeds))}" if len(profile.seeds) > 1 else "one seed"
    print(f"mean ± standard deviation over {seeds}; {took:.0f} s of nodes")
    if profile is FULL:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(report(profile, found, took), indent=1) + "\n")
    return 0


def tell_progress() -> None:
    """The nodes of the run on stderr; other packages stay silent."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("posttrain").setLevel(logging.INFO)


def report(profile: Profile, found: Mapping[str, list[Outcome]], took: float) -> dict[str, object]:
    return {
        **provenance(),
        "threads": RUNTIME.threads,
        "seconds": took,
        "seeds": list(profile.seeds),
        "rl": profile.rl.model_dump(mode="json"),
        "arms": {
            arm: {
                "changes": {
                    name: value.model_dump(mode="json") if hasattr(value, "model_dump") else value
                    for name, value in ARMS[arm].items()
                },
                "runs": [asdict(outcome) for outcome in outcomes],
            }
            for arm, outcomes in found.items()
        },
    }


if __name__ == "__main__":
    sys.exit(main())
