"""What each estimator does to a gradient, and what it costs; and whether the tests would notice wrong code.

`python -m benchmarks.estimators` prints the tables and writes benchmarks/results/estimators.json;
`--mutations` runs the tests against every mutant and writes benchmarks/results/mutations.json.
"""

import argparse
import sys
from pathlib import Path

if __package__ in (None, ""):  # run by path: the repository is not on sys.path then
    sys.path.insert(0, str(Path(__file__).parents[1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutations", action="store_true", help="run the tests against every mutant")
    parser.add_argument("--only", help="with --mutations: one area")
    arguments = parser.parse_args()
    if arguments.mutations:
        from benchmarks.proof import mutations

        return mutations.run(arguments.only)
    raise NotImplementedError


if __name__ == "__main__":
    sys.exit(main())
