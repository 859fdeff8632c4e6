"""What an RL step works on: the model that is trained, what samples it, its prompts, its reference."""

from dataclasses import dataclass
from typing import Any

from stages.context import StageContext
from stages.domains.prompt_table import PromptRow, read_prompts
from stages.domains.protocol import Split
from stages.engines.chat import open_tokenizer
from stages.engines.frozen import FrozenModel
from stages.engines.hf import open_engine
from stages.engines.params import ValueHeadParams
from stages.engines.protocol import RolloutEngine, Trainer
from stages.engines.routes import refuse_mixture_of_experts
from stages.engines.torch_trainer import open_trainer
from stages.estimators.params import Gae
from stages.rl.params import RlParams


@dataclass(frozen=True)
class Policy:
    trainer: Trainer
    engine: RolloutEngine
    tokenizer: Any
    rows: list[PromptRow]
    reference: FrozenModel | None  # of the KL penalty: the policy as this stage began


def open_policy(ctx: StageContext[RlParams]) -> Policy:
    """Raises GuardError for a mixture of experts."""
    params, folder = ctx.params, ctx.input("policy")
    refuse_mixture_of_experts(folder)
    critic = None
    if isinstance(params.advantage, Gae):
        critic = ValueHeadParams(learning_rate=params.advantage.learning_rate)
    updates = params.steps * params.updates_per_batch
    return Policy(
        trainer=open_trainer(folder, params.optimizer, updates, ctx.runtime, critic),
        engine=open_engine(folder, params.engine, ctx.runtime),
        tokenizer=open_tokenizer(folder),
        rows=read_prompts(ctx.input("prompts"), Split.TRAIN),
        reference=FrozenModel(folder, ctx.runtime.micro_batch_rows) if params.kl else None,
    )
