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
from stages.engines.params import OptimizerParams, Schedule
from stages.engines.protocol import MicroBatchLoss
from stages.errors import PosttrainError
from stages.spec import Runtime


class TorchTrainer:
    """A model and its moments; `save` and `load` carry both, so a resumed step equals an undisturbed one."""

    def __init__(self, model: Any, optimizer: OptimizerParams, total_steps: int, runtime: Runtime) -> None:
        # without dropout: the ratio of a fresh sample is 1, and a resumed step repeats without a generator
        self.model = model.to(device()).eval()
        self.params = optimizer
        self.micro_batch_rows = runtime.micro_batch_rows
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=optimizer.learning_rate,
            betas=(0.9, optimizer.beta2),
            weight_decay=optimizer.weight_decay,
        )
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: learning_rate_factor(step, optimizer, total_steps)
        )

    def logits(self, batch: TokenBatch) -> Tensor:
        """[B, T, V]; position t predicts target t."""
        logits: Tensor = self.model(batch.input_BT, attention_mask=batch.attention_BT, use_cache=False).logits
        return logits

    def step(self, terms: Sequence[tuple[TokenBatch, MicroBatchLoss]]) -> float:
        """See Trainer.step. Raises PosttrainError, the weights untouched, if the gradient is not finite."""
        self.optimizer.zero_grad(set_to_none=True)
        for batch, loss in terms:
            for micro in batch.to(self.model.device).micro_batches(self.micro_batch_rows):
                loss(self.logits(micro), micro).backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.params.clip_norm)
        if not torch.isfinite(norm):
            raise PosttrainError(
                "the gradient is not finite, so no step was taken: lower optimizer.learning_rate, "
                "or look for NaN in the model"
            )
        self.optimizer.step()
        self.scheduler.step()
        return float(norm)

    def weights(self) -> Mapping[str, Tensor]:
        state: Mapping[str, Tensor] = self.model.state_dict()
        return state

    def save(self, folder: Path) -> None:
        # a tied embedding is one tensor under two names: parameters are named once
        save_file(
            {name: p.detach().contiguous() for name, p in self.model.named_parameters()},
            folder / "model.safetensors",
        )
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


def learning_rate_factor(step: int, params: OptimizerParams, total_steps: int) -> float:
    """Linear warm-up to 1, then constant, or a cosine down to 0.1 at `total_steps`."""
    if step < params.warmup_steps:
        return (step + 1) / params.warmup_steps
    if params.schedule is Schedule.CONSTANT:
        return 1.0
    share = (step - params.warmup_steps) / max(1, total_steps - params.warmup_steps)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, share)))


def open_trainer(
    folder: Path, optimizer: OptimizerParams, total_steps: int, runtime: Runtime
) -> TorchTrainer:
    """A trainer of a checkpoint folder, in fp32, with fresh moments."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return TorchTrainer(model, optimizer, total_steps, runtime)
