"""Drift where nothing should move, under the exact expected gradient and a sampler that is not the policy.

The reward depends on the first token only, and the first token's own logits are left alone, so that prefixes
keep their different values (a policy that learned them would end the experiment after some steps). The exact
gradient at every later position is then zero at every step, and the KL of the later positions from their
start is drift and nothing else.

Samplers, all resynchronised at each step:
- quantised: the logits of an output layer of 64 features whose weights are int8 or fp4; the error is that of
  the start, kept as a fixed offset, because a table's own rounding would vanish as soon as the table lies on
  the grid (a network's never does);
- stale: weights of 4 steps ago. A table without a gradient would not move and hence not be stale, so that
  other training is stood in for: later positions follow a stationary random path (AR(1), the same for every
  estimator), and drift is what an estimator adds to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from benchmarks.proof.quantised import Quantiser, int8_rows, nvfp4
from benchmarks.proof.tabular import Tabular
from stages.estimators.centering import centred_logprobs, centred_policy_gradient_BT
from stages.estimators.distribution import FromLogits
from stages.estimators.losses import policy_gradient_BT
from stages.estimators.params import (
    Clip,
    Mask,
    Ratio,
    RegulariserChoice,
    Truncate,
    Uncorrected,
    Unregularised,
)
from stages.estimators.ratios import weights_BT

VOCABULARY, LENGTH, FEATURES = 4, 3, 64
LEARNING_RATE, STALE_STEPS = 0.5, 4
PATH_STEP, PATH_MEMORY = 0.1, 0.9
REPORTED = (50, 200, 800)
ROUNDING = 1e-15  # a KL of float64 probabilities that are equal is that small, not 0
REGULARISERS: dict[str, RegulariserChoice] = {
    "exact r": Unregularised(),
    "1 (none)": Uncorrected(),
    "min(r, 1)": Truncate(high=1.0),
    "clip [.9, 1.1]": Clip(low=0.9, high=1.1),
    "mask [.8, 1.25]": Mask(low=0.8, high=1.25),
}
QUANTISERS: dict[str, Quantiser] = {"int8": int8_rows, "fp4": nvfp4}
STALE = f"{STALE_STEPS} steps old"
SAMPLERS = (*QUANTISERS, STALE)


@dataclass
class Worlds:
    """Independent policies side by side, one for each sampler and seed: `table[t]` is [W, V ** t, V].

    `offset`: of the sampler's logits from the policy's, like the table. `stale_W`: whose sampler is old.
    """

    shape: Tabular
    table: list[Tensor]
    offset: list[Tensor]
    stale_W: Tensor
    reward_WS: Tensor

    def logits_WSTV(self, table: Sequence[Tensor]) -> Tensor:
        return torch.stack([rows[:, self.shape.prefix_ST[:, t]] for t, rows in enumerate(table)], 2)


def worlds(seeds: Sequence[int]) -> Worlds:
    """In the order of SAMPLERS x seeds; a seed has the same policy and reward with each sampler."""
    shape = Tabular.random(VOCABULARY, LENGTH, 0)
    tables, offsets, rewards = [], [], []
    for name in SAMPLERS:
        for seed in seeds:
            drawn = torch.Generator().manual_seed(seed)
            weights_VD = torch.randn(VOCABULARY, FEATURES, dtype=torch.float64, generator=drawn)
            error_VD = QUANTISERS[name](weights_VD) - weights_VD if name in QUANTISERS else 0 * weights_VD
            states = [
                torch.randn(VOCABULARY**t, FEATURES, dtype=torch.float64, generator=drawn) / FEATURES**0.5
                for t in range(LENGTH)
            ]
            value_V = torch.randn(VOCABULARY, dtype=torch.float64, generator=drawn)
            tables.append([states_HD @ weights_VD.T for states_HD in states])
            offsets.append([states_HD @ error_VD.T for states_HD in states])
            rewards.append(value_V[shape.tokens_ST[:, 0]])
    return Worlds(
        shape,
        [torch.stack(rows) for rows in zip(*tables, strict=True)],
        [torch.stack(rows) for rows in zip(*offsets, strict=True)],
        torch.tensor([name == STALE for name in SAMPLERS for _ in seeds]),
        torch.stack(rewards),
    )


def drift(seeds: Sequence[int], regulariser: RegulariserChoice, centred: bool, steps: int) -> dict[str, Any]:
    """KL(start || policy) of the later positions, averaged over the start's prefixes, by sampler and step.

    Also the mean KL between sampler and policy at the first step that has both, and the share of sampled
    tokens that the regulariser touches there.
    """
    setting = worlds(seeds)
    start = [rows.clone() for rows in setting.table]
    path = _path(setting, steps)
    added = [torch.zeros_like(rows) for rows in setting.table]
    held: list[list[Tensor]] = []  # the policies of the last steps, oldest first
    found: dict[int, Tensor] = {}
    mismatch_W = touched_W = torch.zeros(0)
    for step in range(steps):
        policy = [
            (rows + moved + there[step]).requires_grad_()
            for rows, moved, there in zip(start, added, path, strict=True)
        ]
        held = [*held, [rows.detach() for rows in policy]][-STALE_STEPS - 1 :]
        sampler = [rows + off for rows, off in zip(held[0], setting.offset, strict=True)]
        fresh = [rows.detach() + off for rows, off in zip(policy, setting.offset, strict=True)]
        stale_W11 = setting.stale_W[:, None, None]
        sampler = [torch.where(stale_W11, old, new) for old, new in zip(sampler, fresh, strict=True)]
        loss, mismatch, touched = _expected_loss(setting, policy, sampler, regulariser, centred)
        if step == STALE_STEPS:
            mismatch_W, touched_W = mismatch, touched
        for t, slope in enumerate(torch.autograd.grad(loss, policy)):
            if t > 0:  # the first token's quality is given, not learned
                added[t] = added[t] - LEARNING_RATE * slope
        if step + 1 in REPORTED:
            found[step + 1] = _later_kl_W(setting, start, added)
    by_sampler = {}
    for place, name in enumerate(SAMPLERS):
        own = slice(place * len(seeds), (place + 1) * len(seeds))
        by_sampler[name] = {
            "kl": {str(step): kl_W[own].tolist() for step, kl_W in found.items()},
            "mismatch": mismatch_W[own].tolist(),
            "touched": touched_W[own].tolist(),
        }
    return by_sampler


def _expected_loss(
    setting: Worlds,
    policy: list[Tensor],
    sampler: list[Tensor],
    regulariser: RegulariserChoice,
    centred: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Summed over worlds: the expectation over the sampler's sequences with the exact baseline.

    The baseline is the sampler's own mean reward, which a leave-one-out mean is in expectation. Also, by
    world: the sampler's mean KL to the policy per position, and the share of tokens that f touches.
    """
    logits, sampler_logits = setting.logits_WSTV(policy), setting.logits_WSTV(sampler)
    shape_WST = logits.shape[:3]
    tokens = setting.shape.tokens_ST.expand(shape_WST).flatten(0, 1)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    logq = sampler_logits.log_softmax(-1).flatten(0, 1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    probability_WS = logq.sum(-1).exp().view(shape_WST[:2])
    baseline_W1 = (probability_WS * setting.reward_WS).sum(1, keepdim=True)
    advantages = (setting.reward_WS - baseline_W1).reshape(-1, 1)
    ratio = Ratio(regulariser=regulariser)
    if centred:
        terms = centred_logprobs(
            logits.flatten(0, 1), tokens, mask, FromLogits(sampler_logits.flatten(0, 1)), regulariser
        )
        logp, weights = terms.logprobs_BT, weights_BT(terms.logprobs_BT.detach() - logq, mask, ratio)
        loss = centred_policy_gradient_BT(logp, weights.values_BT, terms.corrections_BT, advantages, mask)
    else:
        logp = logits.log_softmax(-1).flatten(0, 1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        weights = weights_BT(logp.detach() - logq, mask, ratio)
        loss = policy_gradient_BT(logp, weights.values_BT, advantages, mask)
    mismatch_W = (probability_WS * (logq - logp.detach()).sum(1).view(shape_WST[:2])).sum(1) / LENGTH
    touched_WS = weights.truncated_BT.double().mean(1).view(shape_WST[:2])
    return (
        (probability_WS * loss.sum(1).view(shape_WST[:2])).sum(),
        mismatch_W,
        (probability_WS * touched_WS).sum(1),
    )


def _path(setting: Worlds, steps: int) -> list[Tensor]:
    """[steps, W, V ** t, V]: what other training adds to later positions, where the sampler is stale."""
    paths = []
    for t, rows in enumerate(setting.table):
        drawn = torch.Generator().manual_seed(1_000 + t)
        place = torch.zeros_like(rows)
        added = []
        for _ in range(steps):
            added.append(place)
            noise = torch.randn(rows.shape, dtype=rows.dtype, generator=drawn)
            place = PATH_MEMORY * place + PATH_STEP * noise
        path = torch.stack(added) * setting.stale_W[:, None, None]
        paths.append(path if t > 0 else torch.zeros_like(path))
    return paths


def _later_kl_W(setting: Worlds, start: list[Tensor], added: list[Tensor]) -> Tensor:
    """Mean over later positions of KL(start || start + added), over the start's prefixes."""
    before = setting.logits_WSTV(start).log_softmax(-1)
    after = setting.logits_WSTV([rows + moved for rows, moved in zip(start, added, strict=True)]).log_softmax(
        -1
    )
    tokens = setting.shape.tokens_ST.expand(before.shape[:3]).unsqueeze(-1)
    probability_WS = before.gather(-1, tokens).squeeze(-1).sum(-1).exp()
    kl_WST = (before.exp() * (before - after)).sum(-1)
    return (probability_WS * kl_WST[:, :, 1:].mean(2)).sum(1)


def measure(seeds: Sequence[int], steps: int) -> list[dict[str, Any]]:
    return [
        {"regulariser": name, "centred": centred, "samplers": drift(seeds, regulariser, centred, steps)}
        for name, regulariser in REGULARISERS.items()
        for centred in (False, True)
    ]


def lines(rows: Sequence[dict[str, Any]], seeds: Sequence[int], steps: int) -> list[str]:
    reported = [step for step in REPORTED if step <= steps]
    table = [
        f"Drift of positions that the reward does not depend on: KL(start || policy) after steps of rate "
        f"{LEARNING_RATE}, mean (lowest, highest) of {len(seeds)} seeds",
        f"  {'sampler':12} {'KL(q||p)':>9} {'f(r)':16} {'touched':>8} {'baseline and':14}"
        + "".join(f"{f'{step} steps':>28}" for step in reported),
    ]
    for name in SAMPLERS:
        for row in rows:
            found = row["samplers"][name]
            cells = "".join(f"{_spread(found['kl'][str(step)]):>28}" for step in reported)
            table.append(
                f"  {name:12} {mean(found['mismatch']):9.1e} {row['regulariser']:16} "
                f"{mean(found['touched']):8.1%} {'centering' if row['centred'] else 'nothing else':14}{cells}"
            )
    return table


def _spread(values: Sequence[float]) -> str:
    if max(map(abs, values)) < ROUNDING:
        return f"below {ROUNDING:.0e}"
    return f"{mean(values):.1e} ({min(values):.1e}, {max(values):.1e})"
