"""Training with torch in one process: AdamW, warm-up, clipping; micro-batches leave the gradient alone."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from stages.engines.batch import TokenBatch
from stages.engines.device import device
from stages.engines.params import OptimizerParams, Schedule, ValueHeadParams
from stages.engines.protocol import Forward, MicroBatchLoss, Scores
from stages.errors import PosttrainError
from stages.estimators.blockwise import target_logprobs_BT
from stages.spec import Runtime


class TorchTrainer:
    """A model and its moments; `save` and `load` carry both, so a resumed step equals an undisturbed one.

    A critic is a linear head on detached hidden states: its loss cannot move the model, and the model's
    export does not know it.
    """

    def __init__(
        self,
        model: Any,
        optimizer: OptimizerParams,
        total_steps: int,
        runtime: Runtime,
        critic: ValueHeadParams | None = None,
    ) -> None:
        # without dropout: the ratio of a fresh sample is 1, and a resumed step repeats without a generator
        self.model = model.to(device()).eval()
        self.params = optimizer
        self.micro_batch_rows = runtime.micro_batch_rows
        self.value_head = value_head(model) if critic else None
        groups: list[dict[str, Any]] = [{"params": list(model.parameters()), "lr": optimizer.learning_rate}]
        if critic and self.value_head:
            groups.append({"params": list(self.value_head.parameters()), "lr": critic.learning_rate})
        self.optimizer = torch.optim.AdamW(
            groups, betas=(0.9, optimizer.beta2), weight_decay=optimizer.weight_decay
        )
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: learning_rate_factor(step, optimizer, total_steps)
        )

    def forward(self, batch: TokenBatch) -> Forward:
        """Logits [B, T, V], where position t predicts target t, and the critic's values [B, T]."""
        outputs = self.model(
            batch.input_BT,
            attention_mask=batch.attention_BT,
            use_cache=False,
            output_hidden_states=self.value_head is not None,
        )
        if self.value_head is None:
            return Forward(outputs.logits)
        return Forward(outputs.logits, self.value_head(outputs.hidden_states[-1].detach()).squeeze(-1))

    def step(self, terms: Sequence[tuple[TokenBatch, MicroBatchLoss]]) -> float:
        """See Trainer.step. Raises PosttrainError, the weights untouched, if the gradient is not finite."""
        self.optimizer.zero_grad(set_to_none=True)
        for batch, loss in terms:
            for micro in batch.to(self.model.device).micro_batches(self.micro_batch_rows):
                loss(self.forward(micro), micro).backward()
        # each group by itself: a critic's surprise must not shorten the model's step
        norms = [
            torch.nn.utils.clip_grad_norm_(group["params"], self.params.clip_norm)
            for group in self.optimizer.param_groups
        ]
        if not all(torch.isfinite(norm) for norm in norms):
            raise PosttrainError(
                "the gradient is not finite, so no step was taken: lower optimizer.learning_rate, "
                "or look for NaN in the model"
            )
        self.optimizer.step()
        self.scheduler.step()
        return float(norms[0])

    @torch.no_grad()
    def score(self, batch: TokenBatch, temperature: float) -> Scores:
        """See Trainer.score."""
        at = self.model.device
        logprobs_BT = torch.zeros(batch.mask_BT.shape, device=at)
        values_BT = torch.zeros(batch.mask_BT.shape, device=at) if self.value_head else None
        for micro in batch.to(at).micro_batches(self.micro_batch_rows):
            forward, width = self.forward(micro), micro.mask_BT.shape[1]
            logprobs_BT[micro.rows_B, :width] = target_logprobs_BT(
                forward.logits_BTV, micro.target_BT, micro.mask_BT, temperature
            )
            if values_BT is not None and forward.values_BT is not None:
                values_BT[micro.rows_B, :width] = forward.values_BT.where(micro.mask_BT, 0.0)
        return Scores(logprobs_BT, values_BT)

    def weights(self) -> Mapping[str, Tensor]:
        state: Mapping[str, Tensor] = self.model.state_dict()
        return state

    def save(self, folder: Path) -> None:
        # a tied embedding is one tensor under two names: parameters are named once
        save_file(
            {name: p.detach().contiguous() for name, p in self.model.named_parameters()},
            folder / "model.safetensors",
        )
        if self.value_head is not None:
            save_file(self.value_head.state_dict(), folder / "value_head.safetensors")
        moments = self.optimizer.state_dict()["state"]
        save_file(
            {
                f"{index}.{name}": value.contiguous()
                for index, values in moments.items()
                for name, value in values.items()
            },
            folder / "moments.safetensors",
        )
        (folder / "trainer.json").write_text(json.dumps({"steps": self.scheduler.last_epoch}))

    def load(self, folder: Path) -> None:
        parameters = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, tensor in load_file(folder / "model.safetensors").items():
                parameters[name].copy_(tensor)
        if self.value_head is not None:
            self.value_head.load_state_dict(load_file(folder / "value_head.safetensors"))
        moments: dict[int, dict[str, Tensor]] = {}
        for key, tensor in load_file(folder / "moments.safetensors").items():
            index, name = key.split(".", 1)
            moments.setdefault(int(index), {})[name] = tensor
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})
        steps = json.loads((folder / "trainer.json").read_text())["steps"]
        self.scheduler.load_state_dict({**self.scheduler.state_dict(), "last_epoch": steps})
        for group, lr in zip(
            self.optimizer.param_groups,
            [base * self.scheduler.lr_lambdas[0](steps) for base in self.scheduler.base_lrs],
            strict=True,
        ):
            group["lr"] = lr


def value_head(model: Any) -> torch.nn.Linear:
    """A critic that values everything at 0 until it has learned something."""
    head = torch.nn.Linear(model.config.hidden_size, 1).to(model.device)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    return head


def learning_rate_factor(step: int, params: OptimizerParams, total_steps: int) -> float:
    """Linear warm-up to 1, then constant, or a cosine down to 0.1 at `total_steps`."""
    if step < params.warmup_steps:
        return (step + 1) / params.warmup_steps
    if params.schedule is Schedule.CONSTANT:
        return 1.0
    share = (step - params.warmup_steps) / max(1, total_steps - params.warmup_steps)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, share)))


def open_trainer(
    folder: Path,
    optimizer: OptimizerParams,
    total_steps: int,
    runtime: Runtime,
    critic: ValueHeadParams | None = None,
) -> TorchTrainer:
    """A trainer of a checkpoint folder, in fp32, with fresh moments."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return TorchTrainer(model, optimizer, total_steps, runtime, critic)
