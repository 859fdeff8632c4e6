"""Pre-training of a small Llama on a mixture; the base and the teacher differ in their parameters only."""

import random
from pathlib import Path

from data_contracts.checkpoint import StageRecord, TrainingRecord
from stages.base.mixture import Mixture, draw
from stages.base.params import BaseParams
from stages.context import StageContext
from stages.cursor import rows_of_step
from stages.domains.demonstrated import open_demonstrated
from stages.domains.prompt_table import read_prompts
from stages.engines.batch import TokenBatch, completion_batch
from stages.engines.chat import answer_ids, open_tokenizer, prompt_ids
from stages.engines.checkpoint import export, new_llama
from stages.engines.supervised import cross_entropy
from stages.engines.torch_trainer import TorchTrainer


def pretrain(ctx: StageContext[BaseParams], stage: str) -> None:
    """Train from random weights and write the checkpoint; only prompts of `params.splits` are seen."""
    params = ctx.params
    tokenizer = open_tokenizer(ctx.input("tokenizer"))
    rows = MixtureRows(ctx, params.mixture, ctx.input("tokenizer"))
    model = new_llama(params.shape, tokenizer, ctx.seed("weights"))
    trainer = TorchTrainer(model, params.optimizer, params.steps, ctx.runtime)
    for step in ctx.steps(params.steps, trainer):
        batch = rows.batch(step, params.rows_per_step)
        losses: list[float] = []
        norm = trainer.step([(batch, cross_entropy(batch, losses))])
        ctx.log(step + 1, loss=sum(losses), gradient_norm=norm, tokens=batch.target_count)
    record = TrainingRecord(stages=(StageRecord(stage, params.steps),))
    export(model, tokenizer, record, ctx.output("checkpoint"))


class MixtureRows:
    """The rows of each step, drawn anew from (seed, step): nothing to save, nothing to lose."""

    def __init__(self, ctx: StageContext[BaseParams], mixture: Mixture, tokenizer: Path) -> None:
        self.tokenizer = open_tokenizer(tokenizer)
        self.domain = open_demonstrated(ctx.input("domain"))
        folder = ctx.input("prompts")
        self.prompts = [row for split in ctx.params.splits for row in read_prompts(folder, split)]
        self.mixture = mixture
        self.seed = ctx.seed("mixture")

    def batch(self, step: int, rows: int) -> TokenBatch:
        rng = random.Random(f"{self.seed}/{step}")
        taken = rows_of_step(len(self.prompts), rows, step, self.seed)
        shown = [draw(self.domain, self.prompts[index].prompt, self.mixture, rng) for index in taken]
        messages = [
            self.prompts[index].messages_about(row.text) for index, row in zip(taken, shown, strict=True)
        ]
        return completion_batch(
            [prompt_ids(self.tokenizer, message) for message in messages],
            [answer_ids(self.tokenizer, row.answer) for row in shown],
            self.tokenizer.pad_token_id,
        )
