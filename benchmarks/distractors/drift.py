"""How far a policy has moved where it had no reason to, and how often it is right.

Both are exact given their prefixes: the whole distributions are compared, at prefixes that the policy at the
start has sampled, and a letter's probability is read off the logits.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from benchmarks.distractors.domain import DISTRACTORS, RIGHT
from stages.domains.prompt_table import read_prompts
from stages.domains.protocol import Split
from stages.engines.batch import TokenBatch, completion_batch
from stages.engines.chat import answer_text, open_tokenizer, prompt_ids
from stages.engines.hf import open_engine
from stages.engines.params import EngineParams, Sampling
from stages.spec import Runtime

SAMPLES = 64  # prefixes of each item
SEED = 1


@dataclass(frozen=True)
class Moved:
    """`kl`: mean KL(now || start) of a distractor position, in nats; also by whether the letter was right."""

    kl: float
    kl_after_right: float
    kl_after_wrong: float
    right: float  # probability of the right letter, mean over prompts


class Start:
    """The policy before RL, with prefixes that it sampled."""

    def __init__(self, checkpoint: Path, prompts: Path, sampling: Sampling) -> None:
        tokenizer, rows = open_tokenizer(checkpoint), read_prompts(prompts, Split.TRAIN)
        questions = [prompt_ids(tokenizer, row.messages) for row in rows]
        engine = open_engine(checkpoint, EngineParams(), Runtime())
        rollouts = engine.generate(questions, SAMPLES, sampling, SEED)
        self.batch: TokenBatch = completion_batch(
            [questions[rollout.prompt_index] for rollout in rollouts],
            [rollout.completion_ids for rollout in rollouts],
            tokenizer.pad_token_id,
        )
        place_BT = self.batch.mask_BT.cumsum(1)
        self.first_BT = self.batch.mask_BT & (place_BT == 1)
        self.distractor_BT = self.batch.mask_BT & (place_BT > 1) & (place_BT <= 1 + DISTRACTORS)
        self.letter_id = tokenizer.encode(RIGHT)[0]
        texts = [answer_text(tokenizer, rollout.completion_ids) for rollout in rollouts]
        self.right_B = torch.tensor([text.startswith(RIGHT) for text in texts])
        self.logprobs_BTV = self._logprobs_BTV(checkpoint)

    def moved(self, checkpoint: Path) -> Moved:
        now_BTV = self._logprobs_BTV(checkpoint)
        kl_BT = (now_BTV.exp() * (now_BTV - self.logprobs_BTV)).sum(-1)
        return Moved(
            kl=float(kl_BT[self.distractor_BT].mean()),
            kl_after_right=self._mean(kl_BT, self.right_B),
            kl_after_wrong=self._mean(kl_BT, ~self.right_B),
            right=float(now_BTV[..., self.letter_id][self.first_BT].exp().mean()),
        )

    def _mean(self, kl_BT: Tensor, rows_B: Tensor) -> float:
        return float(kl_BT[self.distractor_BT & rows_B.unsqueeze(1)].mean())

    @torch.no_grad()
    def _logprobs_BTV(self, checkpoint: Path) -> Tensor:
        model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
        logits: Tensor = model(self.batch.input_BT, attention_mask=self.batch.attention_BT).logits
        return logits.double().log_softmax(-1)
