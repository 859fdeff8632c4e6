"""What one run of an arm came to: measured on its checkpoint, and told by its last steps."""

import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.distractors.drift import Start
from benchmarks.distractors.flow import SAMPLING, Made
from tasks.store.objects import Store

LAST = 10  # steps at the end whose metrics are averaged


@dataclass(frozen=True)
class Outcome:
    """One run of an arm; the shares and the KL of the sampler are means of its last steps."""

    seed: int
    kl: float  # mean KL(end || start) of a distractor position, in nats
    kl_after_right: float
    kl_after_wrong: float
    right: float  # probability of the right letter at the end
    pass_rate: float
    cut: float  # completions that did not end
    sampler_kl: float  # KL(sampler || policy) a token: how stale is stale
    touched: float  # tokens whose ratio the regulariser changed


def measure(store: Store, made: Made) -> dict[str, list[Outcome]]:
    policy = Start(store.path(made.start), store.path(made.prompts), SAMPLING)
    found: dict[str, list[Outcome]] = {arm: [] for arm, _ in made.arms}
    for (arm, seed), ref in made.arms.items():
        ends = last_metrics(store.folder(ref.stage, ref.key) / "metrics.jsonl")
        found[arm].append(
            Outcome(
                seed=seed,
                **asdict(policy.moved(store.path(ref))),
                pass_rate=ends["pass_rate"],
                cut=ends["truncated"],
                sampler_kl=ends["k3"],
                touched=ends["truncated_ratios"],
            )
        )
    return found


def last_metrics(file: Path) -> dict[str, float]:
    """Means over the last steps, of those that had the number."""
    steps = [json.loads(line) for line in file.read_text().splitlines()][-LAST:]
    names = {name for step in steps for name, value in step.items() if value is not None}
    return {
        name: statistics.fmean(step[name] for step in steps if step.get(name) is not None) for name in names
    }


def seconds(store: Store, made: Made) -> float:
    """That the nodes took, all attempts together, whichever call of the benchmark made them."""
    nodes = [made.prompts, made.start, made.archive, *made.arms.values()]
    manifests = [store.lookup(ref.stage, ref.key) for ref in nodes]
    return round(sum(manifest.seconds for manifest in manifests if manifest), 1)
