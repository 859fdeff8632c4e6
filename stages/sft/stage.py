"""SFT: cross-entropy on the reference answer's tokens, the prompt masked out."""

from data_contracts.checkpoint import record_after
from data_contracts.dataset import DatasetWriter, token_metadata
from stages.context import StageContext
from stages.cursor import rows_of_step
from stages.domains.demonstrated import open_referenced
from stages.domains.prompt_table import PromptRow, read_prompts
from stages.domains.protocol import Split
from stages.engines.batch import completion_batch
from stages.engines.chat import answer_ids, open_tokenizer, prompt_ids
from stages.engines.checkpoint import export
from stages.engines.supervised import cross_entropy
from stages.engines.torch_trainer import open_trainer
from stages.sft.params import SftParams


def run(ctx: StageContext[SftParams]) -> None:
    params = ctx.params
    policy = ctx.input("policy")
    tokenizer = open_tokenizer(policy)
    domain = open_referenced(ctx.input("domain"))
    rows = read_prompts(ctx.input("prompts"), Split.TRAIN)
    prompts = [prompt_ids(tokenizer, row.messages) for row in rows]
    answers = [answer_ids(tokenizer, domain.reference(row.prompt)) for row in rows]
    write_examples(ctx, rows, prompts, answers)

    trainer = open_trainer(policy, params.optimizer, params.steps, ctx.runtime)
    for step in ctx.steps(params.steps, trainer):
        taken = rows_of_step(len(rows), params.rows_per_step, step, ctx.seed("rows"))
        batch = completion_batch(
            [prompts[index] for index in taken], [answers[index] for index in taken], tokenizer.pad_token_id
        )
        losses: list[float] = []
        norm = trainer.step([(batch, cross_entropy(batch, losses))])
        ctx.log(step + 1, loss=sum(losses), gradient_norm=norm, tokens=batch.target_count)

    record = record_after(policy, "sft", params.steps)
    export(trainer.model, tokenizer, record, ctx.output("checkpoint"))


def write_examples(
    ctx: StageContext[SftParams], rows: list[PromptRow], prompts: list[list[int]], answers: list[list[int]]
) -> None:
    metadata = token_metadata(ctx.input("policy"))
    with DatasetWriter(ctx.output_path("examples"), "sft_examples/1", metadata) as writer:
        writer.write(
            [
                {
                    "prompt_id": row.prompt.id,
                    "capability": row.prompt.capability,
                    "tokens": prompt + answer,
                    "loss_mask": [0] * len(prompt) + [1] * len(answer),
                }
                for row, prompt, answer in zip(rows, prompts, answers, strict=True)
            ]
        )
