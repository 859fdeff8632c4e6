"""How a training step's threads should wait for each other: on idle cores, and beside other work.

`python benchmarks/threads.py` runs each setting in a process of its own, interleaved over rounds, prints the
table and writes benchmarks/results/threads.json. It backs tasks/process/cores.py.
"""

import argparse
import hashlib
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "threads.json"
SETTINGS = {
    "two threads, spinning": (2, None),
    "two threads, sleeping": (2, "PASSIVE"),
    "one thread": (1, None),
}
ROWS, WARM_UP, STEPS, ROUNDS = 64, 2, 12, 3


class Vocabulary:
    """What a new model asks of a tokenizer."""

    eos_token_id, pad_token_id = 1, 0

    def __len__(self) -> int:
        return 860


def child(threads: int) -> None:
    """Time steps of the default base model; print seconds a step and the digest of the weights."""
    import torch

    from stages.engines.batch import completion_batch
    from stages.engines.checkpoint import new_llama
    from stages.engines.params import ModelShape, OptimizerParams
    from stages.engines.supervised import cross_entropy
    from stages.engines.torch_trainer import TorchTrainer
    from stages.spec import Runtime

    torch.set_num_threads(threads)
    rng = random.Random(0)
    model = new_llama(ModelShape(), Vocabulary(), seed=0)
    trainer = TorchTrainer(model, OptimizerParams(), WARM_UP + STEPS, Runtime(threads=threads))
    for step in range(WARM_UP + STEPS):
        if step == WARM_UP:
            began = time.perf_counter()
        prompts = [[rng.randrange(4, 860) for _ in range(rng.randint(10, 20))] for _ in range(ROWS)]
        answers = [[rng.randrange(4, 860) for _ in range(rng.randint(15, 45))] for _ in range(ROWS)]
        batch = completion_batch(prompts, answers, 0)
        trainer.step([(batch, cross_entropy(batch, []))])
    seconds = (time.perf_counter() - began) / STEPS
    weights = b"".join(tensor.detach().numpy().tobytes() for tensor in trainer.weights().values())
    print(json.dumps({"seconds": seconds, "weights": hashlib.sha256(weights).hexdigest()}))


def measure(threads: int, policy: str | None) -> dict[str, float | str]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
    environment.pop("OMP_WAIT_POLICY", None)
    if policy:
        environment["OMP_WAIT_POLICY"] = policy
    command = [sys.executable, __file__, "--child", str(threads)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float | str] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextmanager
def other_work(processes: int) -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main() -> None:
    found: dict[str, dict[str, list[float]]] = {}
    digests: dict[int, set[str]] = {}
    for cores, processes in (("idle cores", 0), ("one core busy", 1)):
        with other_work(processes):
            for _ in range(ROUNDS):
                for name, (threads, policy) in SETTINGS.items():
                    run = measure(threads, policy)
                    found.setdefault(cores, {}).setdefault(name, []).append(float(run["seconds"]))
                    digests.setdefault(threads, set()).add(str(run["weights"]))
    for cores, by_setting in found.items():
        print(f"{cores}: seconds a step of {ROWS} rows, median (lowest, highest) of {ROUNDS}")
        for name, seconds in by_setting.items():
            low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
            print(f"  {name:24} {middle:.3f} ({low:.3f}, {high:.3f})")
    same = all(len(of_threads) == 1 for of_threads in digests.values())
    print(f"weights equal whatever the waiting, per number of threads: {'yes' if same else 'NO'}")
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    RESULTS.parent.mkdir(exist_ok=True)
    report = {
        "seconds": found,
        "weights_equal": same,
        "seed": 0,
        "machine": machine,
        "commit": git.stdout.strip(),
    }
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
    else:
        main()
