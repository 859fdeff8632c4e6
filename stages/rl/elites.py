"""The elites that a run replays: checked once against the policy's base and the verifier, drawn per step."""

import random
from collections import defaultdict
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_contracts.dataset import read
from stages.domains.pool import VerifierPool
from stages.domains.prompt_table import PromptRow
from stages.errors import GuardError


@dataclass(frozen=True)
class ReplayElite:
    """An archived answer with the base's log-probs of its tokens at the temperature that sampled it."""

    prompt_id: str
    signature: str
    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    temperature: float


class Elites:
    """Elites by prompt; prompts with a single one are left out, they would be SFT on one answer."""

    def __init__(self, by_prompt: dict[str, list[ReplayElite]]) -> None:
        self.by_prompt = {prompt: elites for prompt, elites in by_prompt.items() if len(elites) > 1}
        self.left_out = len(by_prompt) - len(self.by_prompt)
        self.signatures = {
            prompt: {elite.signature for elite in elites} for prompt, elites in self.by_prompt.items()
        }

    def require_width(self) -> None:
        """Raises GuardError if no prompt has two strategies."""
        if not self.by_prompt:
            raise GuardError(
                "no prompt of the archive has two strategies, so there is no width to replay: sample more "
                "for the archive, or set rl.replay.coefficient to 0"
            )

    def draw(self, count: int, seed: int, among: AbstractSet[str] | None = None) -> list[ReplayElite]:
        """All elites of prompts drawn without return until there are `count`; `among` these prompts only."""
        rng = random.Random(seed)
        prompts = [prompt for prompt in self.by_prompt if among is None or prompt in among]
        rng.shuffle(prompts)
        drawn: list[ReplayElite] = []
        for prompt in prompts:
            if len(drawn) >= count:
                break
            drawn.extend(self.by_prompt[prompt])
        return drawn


def open_elites(
    folder: Path, base_digest: str, signature_version: str, rows: list[PromptRow], pool: VerifierPool
) -> Elites:
    """Load the archive and refuse one that this policy must not replay (methods.md 1(c)).

    Raises GuardError for another base, an RL ancestor, another signature version, elites of prompts that are
    not trained on, or an elite that does not verify to its own signature again.
    """
    table: list[dict[str, Any]] = read(folder, "elite_archive/1").to_pylist()
    for elite in table:
        if elite["base_digest"] != base_digest or elite["rl_steps"]:
            raise GuardError(
                f"the archive was sampled from {elite['base_digest'][:19]} ({elite['rl_steps']} RL steps), "
                f"the policy descends from {base_digest[:19]}: build the archive from its own frozen base"
            )
        if elite["signature_version"] != signature_version:
            raise GuardError(
                f"the archive's signatures are of version {elite['signature_version']}, here they are "
                f"{signature_version}: strategies cannot be compared; build the archive again"
            )
    prompts = {row.prompt.id: row.prompt for row in rows}
    unknown = sorted({elite["prompt_id"] for elite in table} - prompts.keys())
    if unknown:
        raise GuardError(
            f"the archive has prompts that are not in the training split, among them {unknown[:3]}: "
            "build it from the same prompts dataset"
        )
    judgements = pool.judge(
        [prompts[elite["prompt_id"]] for elite in table], [elite["text"] for elite in table]
    )
    for elite, judgement in zip(table, judgements, strict=True):
        if judgement.verdict.reward != 1.0 or judgement.signature != elite["signature"]:
            raise GuardError(
                f"the elite {elite['signature']} of prompt {elite['prompt_id']} does not verify any more: "
                "the verifier or the database changed; build the archive again"
            )
    by_prompt: dict[str, list[ReplayElite]] = defaultdict(list)
    for elite in table:
        by_prompt[elite["prompt_id"]].append(
            ReplayElite(
                elite["prompt_id"],
                elite["signature"],
                elite["prompt_ids"],
                elite["completion_ids"],
                elite["logprobs"],
                elite["temperature"],
            )
        )
    return Elites(by_prompt)
