"""Time and peak memory of each loss, forward and backward, beside a plain log-softmax gather of its logits.

Each measurement is a process of its own; rounds are interleaved, so that a slow spell of the machine meets
every loss. Memory is the peak of the process (VmHWM) above what it holds once the logits are there, as a
multiple of the logits' bytes: their gradient alone is 1. It is taken twice: as a process runs by itself,
where glibc keeps freed blocks on its heap, and once with large blocks given back to the system at once (a
fixed MALLOC_MMAP_THRESHOLD_), which is what the tensors themselves need.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stages.estimators.blockwise import target_logprobs_BT
from stages.estimators.centering import centred_logprobs, centred_policy_gradient_BT
from stages.estimators.distillation import reverse_kl_BT, top_k_reverse_kl_BT
from stages.estimators.distribution import Distribution, FromHidden, TopHead
from stages.estimators.losses import (
    BatchCounts,
    aggregate,
    clipped_surrogate_BT,
    policy_gradient_BT,
)
from stages.estimators.params import Cispo, Gspo, Level, PpoClip, Ratio, SequenceMean, TokenMean, Truncate
from stages.estimators.ratios import weights_BT

ROOT = Path(__file__).parents[2]
PLAIN = "plain log-softmax gather"
WIDTH = 256  # of the hidden states that another policy's distribution is recomputed from
HEAD_ENTRIES, TOP_K = 128, 64
GIVEN_BACK = {"MALLOC_MMAP_THRESHOLD_": "1000000"}


@dataclass(frozen=True)
class Shape:
    rows: int
    tokens: int
    vocabulary: int
    rounds: int
    given_back: bool  # whether the peak is also taken with large blocks given back


FULL = Shape(rows=16, tokens=512, vocabulary=32_000, rounds=3, given_back=True)
SMALL = Shape(rows=4, tokens=64, vocabulary=32_000, rounds=1, given_back=False)


@dataclass(frozen=True)
class Given:
    """What a loss gets besides the logits."""

    target_BT: Tensor
    mask_BT: Tensor
    behaviour_BT: Tensor
    advantages_BT: Tensor
    other: Distribution
    head: TopHead

    @property
    def counts(self) -> BatchCounts:
        return BatchCounts.of(self.mask_BT)

    def logprobs_BT(self, logits_BTV: Tensor) -> Tensor:
        return target_logprobs_BT(logits_BTV, self.target_BT, self.mask_BT)

    def weights_BT(self, logprobs_BT: Tensor, ratio: Ratio) -> Tensor:
        return weights_BT(logprobs_BT.detach() - self.behaviour_BT, self.mask_BT, ratio).values_BT

    def token_mean(self, loss_BT: Tensor) -> Tensor:
        return aggregate(loss_BT, self.mask_BT, TokenMean(), self.counts)


def plain(logits_BTV: Tensor, given: Given) -> Tensor:
    picked_BT1 = logits_BTV.log_softmax(-1).gather(-1, given.target_BT.unsqueeze(-1))
    return -(picked_BT1.squeeze(-1) * given.advantages_BT).mean()


def policy_gradient(logits_BTV: Tensor, given: Given) -> Tensor:
    return _weighted(logits_BTV, given, Ratio())


def cispo(logits_BTV: Tensor, given: Given) -> Tensor:
    return _weighted(logits_BTV, given, Cispo().ratio)


def ppo_clip(logits_BTV: Tensor, given: Given) -> Tensor:
    return given.token_mean(_surrogate_BT(logits_BTV, given, Level.TOKEN, PpoClip()))


def gspo(logits_BTV: Tensor, given: Given) -> Tensor:
    loss_BT = _surrogate_BT(logits_BTV, given, Level.GEOMETRIC, Gspo())
    return aggregate(loss_BT, given.mask_BT, SequenceMean(), given.counts)


def centred_full(logits_BTV: Tensor, given: Given) -> Tensor:
    return _centred(logits_BTV, given, given.other)


def centred_head(logits_BTV: Tensor, given: Given) -> Tensor:
    return _centred(logits_BTV, given, given.head)


def reverse_kl(logits_BTV: Tensor, given: Given) -> Tensor:
    return given.token_mean(reverse_kl_BT(logits_BTV, given.mask_BT, given.other))


def reverse_kl_top_k(logits_BTV: Tensor, given: Given) -> Tensor:
    return given.token_mean(top_k_reverse_kl_BT(logits_BTV, given.mask_BT, given.other, TOP_K))


LOSSES: dict[str, Callable[[Tensor, Given], Tensor]] = {
    PLAIN: plain,
    "policy gradient, truncated": policy_gradient,
    "ppo clip": ppo_clip,
    "gspo": gspo,
    "cispo": cispo,
    f"centred, head of {HEAD_ENTRIES}": centred_head,
    "centred, whole vocabulary": centred_full,
    "reverse kl, whole vocabulary": reverse_kl,
    f"reverse kl, top {TOP_K}": reverse_kl_top_k,
}


def measure(shape: Shape) -> dict[str, Any]:
    """Per loss: seconds of every round, and the peak above the logits as a multiple of their bytes."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in LOSSES}
    for _ in range(shape.rounds):
        for name in LOSSES:
            found[name].append(_in_a_process(name, shape, {}))
    given_back = {
        name: _in_a_process(name, shape, GIVEN_BACK)["peak_over_logits"]
        for name in LOSSES
        if shape.given_back
    }
    return {
        name: {
            "seconds": [run["seconds"] for run in runs],
            "peak_over_logits": [run["peak_over_logits"] for run in runs],
            "peak_given_back": given_back.get(name),
        }
        for name, runs in found.items()
    }


def lines(found: dict[str, Any], shape: Shape) -> list[str]:
    megabytes = shape.rows * shape.tokens * shape.vocabulary * 4 / 1e6
    size = f"[{shape.rows} x {shape.tokens} x {shape.vocabulary:,}] float32, {megabytes:,.0f} MB of logits"
    yardstick = statistics.median(found[PLAIN]["seconds"])
    table = [
        f"Time and memory of forward and backward at {size}: median (lowest, highest) of {shape.rounds}",
        f"  {'loss':30} {'seconds':>22} {'x plain':>8} {'peak above, x logits':>22} "
        f"{'blocks given back':>18}",
    ]
    for name, runs in found.items():
        seconds, peaks = runs["seconds"], runs["peak_over_logits"]
        spread = f"{statistics.median(seconds):.2f} ({min(seconds):.2f}, {max(seconds):.2f})"
        peak = f"{statistics.median(peaks):.2f} ({min(peaks):.2f}, {max(peaks):.2f})"
        table.append(
            f"  {name:30} {spread:>22} {statistics.median(seconds) / yardstick:8.2f} {peak:>22} "
            f"{'-' if runs['peak_given_back'] is None else format(runs['peak_given_back'], '.2f'):>18}"
        )
    table.append(
        f"  the other policy is recomputed from hidden states of width {WIDTH}, forward and again backward"
    )
    return table


def _weighted(logits_BTV: Tensor, given: Given, ratio: Ratio) -> Tensor:
    logprobs_BT = given.logprobs_BT(logits_BTV)
    weights = given.weights_BT(logprobs_BT, ratio)
    return given.token_mean(policy_gradient_BT(logprobs_BT, weights, given.advantages_BT, given.mask_BT))


def _surrogate_BT(logits_BTV: Tensor, given: Given, level: Level, clip: PpoClip | Gspo) -> Tensor:
    return clipped_surrogate_BT(
        given.logprobs_BT(logits_BTV),
        given.behaviour_BT,
        given.advantages_BT,
        given.mask_BT,
        level,
        clip.clip_low,
        clip.clip_high,
    )


def _centred(logits_BTV: Tensor, given: Given, sampler: Distribution | TopHead) -> Tensor:
    centred = centred_logprobs(logits_BTV, given.target_BT, given.mask_BT, sampler, Truncate())
    weights = given.weights_BT(centred.logprobs_BT, Ratio(regulariser=Truncate()))
    return given.token_mean(
        centred_policy_gradient_BT(
            centred.logprobs_BT, weights, centred.corrections_BT, given.advantages_BT, given.mask_BT
        )
    )


def _in_a_process(name: str, shape: Shape, allocator: dict[str, str]) -> dict[str, float]:
    size = [str(number) for number in (shape.rows, shape.tokens, shape.vocabulary)]
    command = [sys.executable, "-m", "benchmarks.proof.footprint", "--child", name, "--size", *size]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads()),
        "OMP_WAIT_POLICY": "PASSIVE",  # steadier beside other work: benchmarks/threads.py
        "PYTHONPATH": str(ROOT),
        **allocator,
    }
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    run: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return run


def threads() -> int:
    return min(2, os.cpu_count() or 1)


def _child(name: str, rows: int, tokens: int, vocabulary: int) -> None:
    torch.manual_seed(0)
    given = _given(rows, tokens, vocabulary)
    logits_BTV = torch.empty(rows, tokens, vocabulary)
    pattern_NV = 2 * torch.randn(64, vocabulary)  # the numbers do not matter, drawing 262 million takes long
    for block_NV in logits_BTV.flatten(0, 1).split(64):
        block_NV.copy_(pattern_NV[: len(block_NV)])
    logits_BTV.requires_grad_()
    _warm_up(name, vocabulary)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from what is held now
    before = _status("VmRSS")
    began = time.perf_counter()
    LOSSES[name](logits_BTV, given).backward()
    seconds = time.perf_counter() - began
    peak = (_status("VmHWM") - before) * 1024 / (logits_BTV.numel() * logits_BTV.element_size())
    assert logits_BTV.grad is not None and bool(logits_BTV.grad[0, 0].isfinite().all())
    print(json.dumps({"seconds": seconds, "peak_over_logits": peak}))


def _given(rows: int, tokens: int, vocabulary: int) -> Given:
    states_BTD = torch.randn(rows, tokens, WIDTH)
    head_DV = torch.randn(WIDTH, vocabulary) * 2 / WIDTH**0.5
    ids_K = torch.randperm(vocabulary)[:HEAD_ENTRIES]
    logprobs_K = torch.randn(HEAD_ENTRIES).log_softmax(0) - 0.01
    return Given(
        target_BT=torch.randint(vocabulary, (rows, tokens)),
        mask_BT=torch.ones(rows, tokens, dtype=torch.bool),
        behaviour_BT=torch.randn(rows, tokens) - 12.0,
        advantages_BT=torch.randn(rows, 1),
        other=FromHidden(states_BTD, lambda states_ND: states_ND @ head_DV),
        head=TopHead(ids_K.repeat(rows, tokens, 1), logprobs_K.repeat(rows, tokens, 1)),
    )


def _warm_up(name: str, vocabulary: int) -> None:
    """Libraries load and threads start outside the measurement."""
    logits_BTV = torch.randn(1, 2, vocabulary, requires_grad=True)
    LOSSES[name](logits_BTV, _given(1, 2, vocabulary)).backward()


def _status(field: str) -> int:
    """Kilobytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise LookupError(field)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--size", nargs=3, type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.child:
        _child(chosen.child, *chosen.size)
    else:
        shape = SMALL if chosen.small else FULL
        print("\n".join(lines(measure(shape), shape)))


if __name__ == "__main__":
    main()
