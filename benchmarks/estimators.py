"""What each estimator does to a gradient, and what it costs; and whether the tests would notice wrong code.

`python -m benchmarks.estimators` prints four tables and writes benchmarks/results/estimators.json: bias and
variance of every combination against the exact gradient, what each advantage does to an easy and a hard
prompt, drift on positions that must not move, time and memory of each loss. `--profile ci` is a smaller
version within a minute, and writes nothing. `--mutations` runs the tests against every mutant and writes
benchmarks/results/mutations.json, with `--only AREA` nothing; it ends with 1 if one survives.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[1]
if __package__ in (None, ""):  # run by its path: the repository is not on sys.path then
    sys.path[0] = str(ROOT)

if TYPE_CHECKING:
    from benchmarks.proof.footprint import Shape

RESULTS = ROOT / "benchmarks" / "results" / "estimators.json"


@dataclass(frozen=True)
class Profile:
    bias_seeds: range
    drift_seeds: range
    drift_steps: int
    shape: "Shape"


def profile(name: str) -> Profile:
    from benchmarks.proof.footprint import FULL, SMALL

    if name == "ci":
        return Profile(bias_seeds=range(2), drift_seeds=range(3), drift_steps=50, shape=SMALL)
    return Profile(bias_seeds=range(5), drift_seeds=range(5), drift_steps=800, shape=FULL)


def tables(chosen: Profile) -> dict[str, object]:
    """Print each table as soon as it is there; the numbers behind them."""
    import torch

    from benchmarks.proof import advantages, bias, drift, footprint
    from benchmarks.provenance import provenance

    torch.set_num_threads(1)  # the tables' tensors are small; the footprint's processes set their own
    began = time.perf_counter()
    of_bias = bias.measure(chosen.bias_seeds)
    print("\n".join(bias.lines(of_bias, chosen.bias_seeds)), end="\n\n", flush=True)
    of_advantages = advantages.measure(chosen.bias_seeds)
    print("\n".join(advantages.lines(of_advantages, chosen.bias_seeds)), end="\n\n", flush=True)
    of_drift = drift.measure(chosen.drift_seeds, chosen.drift_steps)
    print("\n".join(drift.lines(of_drift, chosen.drift_seeds, chosen.drift_steps)), end="\n\n", flush=True)
    of_footprint = footprint.measure(chosen.shape)
    print("\n".join(footprint.lines(of_footprint, chosen.shape)), flush=True)
    seconds = time.perf_counter() - began
    print(f"{seconds:.0f} s in all")
    return {
        **provenance(),
        "seconds": round(seconds, 1),
        "bias": {"seeds": list(chosen.bias_seeds), "rows": of_bias},
        "advantages": {"seeds": list(chosen.bias_seeds), "rows": of_advantages},
        "drift": {"seeds": list(chosen.drift_seeds), "steps": chosen.drift_steps, "rows": of_drift},
        "footprint": {
            "shape": asdict(chosen.shape),
            "threads": footprint.threads(),
            "seed": 0,
            "losses": of_footprint,
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", choices=("full", "ci"), default="full")
    parser.add_argument("--mutations", action="store_true", help="run the tests against every mutant")
    parser.add_argument(
        "--only", metavar="AREA", help="with --mutations: only benchmarks/proof/mutants/AREA.py"
    )
    arguments = parser.parse_args()
    if arguments.mutations:
        from benchmarks.proof import mutations

        return mutations.run(arguments.only)
    found = tables(profile(arguments.profile))
    if arguments.profile == "full":
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
