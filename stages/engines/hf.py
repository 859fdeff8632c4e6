"""Rollouts with transformers: one prefill a prompt, finished rows leave the batch, seeds a row of its own.

A sample is drawn by inverse CDF from uniforms that belong to (seed, prompt, sample), so the batching, which
is a matter of the machine, does not choose what is sampled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache

from data_contracts.values import StopReason
from stages.engines.batch import TokenBatch
from stages.engines.device import device
from stages.engines.hidden import distribution_of, require_plain_output
from stages.engines.params import EngineParams, Sampling
from stages.engines.protocol import Rollout
from stages.errors import PosttrainError
from stages.estimators.distribution import FromHidden
from stages.spec import Runtime

COMPACT_BELOW = 0.75  # share of live rows under which finished ones leave the cache


@dataclass(frozen=True)
class _Decoded:
    """A finished row; `head` is empty, or its most likely ids and their log-probs at each position."""

    ids: list[int]
    logprobs: list[float]
    reason: StopReason
    head: tuple[()] | tuple[list[list[int]], list[list[float]]]


class HfEngine:
    """A model of its own; `load_weights` replaces its tensors, and no cache outlives a `generate`."""

    def __init__(self, model: Any, batch_rows: int) -> None:
        self.model = model.to(device()).eval()
        self.batch_rows = batch_rows
        self.weight_version = 0
        self.plain_output = False  # not asked yet
        self.eos_id: int = model.generation_config.eos_token_id
        self.pad_id: int = model.generation_config.pad_token_id

    def load_weights(self, tensors: Mapping[str, Tensor], version: int) -> None:
        """Replace every tensor; raises PosttrainError if the sets of names differ."""
        own = self.model.state_dict()
        if own.keys() != tensors.keys():
            differing = sorted(own.keys() ^ tensors.keys())[:3]
            raise PosttrainError(f"the engine and the trainer hold different tensors, among them {differing}")
        with torch.no_grad():
            for name, tensor in tensors.items():
                own[name].copy_(tensor)
        self.weight_version = version

    @torch.inference_mode()
    def generate(
        self, prompt_ids: Sequence[Sequence[int]], n: int, sampling: Sampling, seed: int, head: int = 0
    ) -> list[Rollout]:
        """See RolloutEngine.generate."""
        by_prompt: dict[int, list[Rollout]] = {}
        by_length = sorted(range(len(prompt_ids)), key=lambda index: len(prompt_ids[index]))
        prompts_at_once = max(1, self.batch_rows // n)
        for start in range(0, len(by_length), prompts_at_once):
            part = by_length[start : start + prompts_at_once]
            uniforms_RT = torch.cat([_uniforms(seed, index, n, sampling.max_new_tokens) for index in part])
            decoded = self._decode([prompt_ids[index] for index in part], n, sampling, uniforms_RT, head)
            for place, index in enumerate(part):
                by_prompt[index] = [
                    Rollout(
                        index,
                        row.ids,
                        row.logprobs,
                        row.reason,
                        self.weight_version,
                        self.weight_version,
                        sampling,
                        *row.head,
                    )
                    for row in decoded[place * n : (place + 1) * n]
                ]
        return [rollout for index in range(len(prompt_ids)) for rollout in by_prompt[index]]

    def distribution(self, batch: TokenBatch, temperature: float) -> FromHidden:
        """See RolloutEngine.distribution."""
        if not self.plain_output:
            require_plain_output(self.model)
            self.plain_output = True
        return distribution_of(self.model, batch, temperature)

    def _decode(
        self, prompts: list[Sequence[int]], n: int, sampling: Sampling, uniforms_RT: Tensor, head: int
    ) -> list[_Decoded]:
        """R = len(prompts) * n completions; one prefill a prompt, its cache then repeated n times."""
        at = self.model.device
        ids_PT, attention_PT = (tensor.to(at) for tensor in left_padded(prompts, self.pad_id))
        uniforms_RT = uniforms_RT.to(at)
        cache = DynamicCache(config=self.model.config)
        positions_PT = (attention_PT.cumsum(1) - 1).clamp(min=0)
        logits_RV = (
            self.model(
                ids_PT,
                attention_mask=attention_PT,
                position_ids=positions_PT,
                past_key_values=cache,
                logits_to_keep=1,
            )
            .logits[:, -1]
            .repeat_interleave(n, 0)
        )
        cache.batch_repeat_interleave(n)
        attention_RT = attention_PT.repeat_interleave(n, 0)
        position_R = positions_PT[:, -1].repeat_interleave(n, 0)

        rows = len(prompts) * n
        tokens_RT = torch.full((rows, sampling.max_new_tokens), self.pad_id, device=at)
        logprobs_RT = torch.zeros((rows, sampling.max_new_tokens), device=at)
        head = min(head, logits_RV.shape[1])
        head_ids_RTK = torch.zeros((rows, sampling.max_new_tokens, head), dtype=torch.long, device=at)
        head_logprobs_RTK = torch.zeros((rows, sampling.max_new_tokens, head), device=at)
        length_R = torch.zeros(rows, dtype=torch.long, device=at)
        finished_R = torch.zeros(rows, dtype=torch.bool, device=at)
        # the batch's rows, as indices of R; finished ones leave it now and then
        live = torch.arange(rows, device=at)
        for step in range(sampling.max_new_tokens):
            logprobs_LV = sampling_logprobs(logits_RV, sampling)
            token_L, logprob_L = draw(logprobs_LV, uniforms_RT[live, step])
            going_L = ~finished_R[live]
            going = live[going_L]
            tokens_RT[going, step] = token_L[going_L]
            logprobs_RT[going, step] = logprob_L[going_L]
            if head:
                best = logprobs_LV[going_L].topk(head)
                head_logprobs_RTK[going, step], head_ids_RTK[going, step] = best
            length_R[going] += 1
            finished_R[going] = token_L[going_L] == self.eos_id
            still_L = ~finished_R[live]
            remaining = int(still_L.sum())
            if remaining == 0 or step + 1 == sampling.max_new_tokens:
                break
            if remaining < COMPACT_BELOW * len(live):
                keep_L = still_L.nonzero().squeeze(1)
                cache.batch_select_indices(keep_L)
                live, token_L = live[keep_L], token_L[keep_L]
                attention_RT, position_R = attention_RT[keep_L], position_R[keep_L]
            attention_RT = torch.cat([attention_RT, attention_RT.new_ones(len(live), 1)], 1)
            position_R = position_R + 1
            logits_RV = self.model(
                token_L.unsqueeze(1),
                attention_mask=attention_RT,
                position_ids=position_R.unsqueeze(1),
                past_key_values=cache,
            ).logits[:, -1]
        tokens, logprobs = tokens_RT.tolist(), logprobs_RT.tolist()
        return [
            _Decoded(
                tokens[row][:length],
                logprobs[row][:length],
                StopReason.EOS if finished else StopReason.LENGTH,
                (head_ids_RTK[row, :length].tolist(), head_logprobs_RTK[row, :length].tolist())
                if head
                else (),
            )
            for row, (length, finished) in enumerate(zip(length_R.tolist(), finished_R.tolist(), strict=True))
        ]


def left_padded(prompts: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Token ids [P, T] and their attention mask [P, T], int64, on the CPU."""
    width = max(len(prompt) for prompt in prompts)
    ids_PT = torch.full((len(prompts), width), pad_id)
    attention_PT = torch.zeros((len(prompts), width), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids_PT[row, width - len(prompt) :] = torch.tensor(prompt)
        attention_PT[row, width - len(prompt) :] = 1
    return ids_PT, attention_PT


def _uniforms(seed: int, prompt_index: int, n: int, length: int) -> Tensor:
    """[n, length], drawn on the CPU, so that every device samples from the same numbers."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + prompt_index) % 2**63)
    return torch.rand((n, length), generator=generator, dtype=torch.float64)


def sampling_logprobs(logits_RV: Tensor, sampling: Sampling) -> Tensor:
    """Log-probs of softmax(logits / temperature), renormalised over the top-k and top-p support: [R, V]."""
    logprobs_RV = (logits_RV.float() / sampling.temperature).log_softmax(-1)
    if not sampling.full_support:
        logprobs_RV = _restrict(logprobs_RV, sampling).log_softmax(-1)
    return logprobs_RV


def draw(logprobs_RV: Tensor, uniform_R: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens [R] by inverse CDF of the distributions, and their log-probabilities under them [R]."""
    cdf_RV = logprobs_RV.double().exp().cumsum(-1)
    token_R = torch.searchsorted(cdf_RV, (uniform_R * cdf_RV[:, -1]).unsqueeze(1), right=True).squeeze(1)
    token_R = token_R.clamp(max=logprobs_RV.shape[1] - 1)
    return token_R, logprobs_RV.gather(1, token_R.unsqueeze(1)).squeeze(1)


def _restrict(logprobs_RV: Tensor, sampling: Sampling) -> Tensor:
    """-inf outside the support: the k most likely tokens, and the fewest of them that reach top_p."""
    sorted_RV, order_RV = logprobs_RV.sort(dim=-1, descending=True, stable=True)
    kept_RV = sorted_RV.exp().cumsum(-1) - sorted_RV.exp() < sampling.top_p
    if sampling.top_k:
        kept_RV[:, sampling.top_k :] = False
    support_RV = torch.zeros_like(kept_RV).scatter(1, order_RV, kept_RV)
    return logprobs_RV.masked_fill(~support_RV, -torch.inf)


def open_engine(folder: Path, params: EngineParams, runtime: Runtime) -> HfEngine:
    """The rollout engine of a checkpoint folder."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, params.dtype))
    return HfEngine(model, runtime.sample_batch_rows)
