"""A user's domain in a module of their own: say a word, plain or in brackets."""

import random
from collections.abc import Sequence
from pathlib import Path

from stages.domains.protocol import Message, Prompt, Split, Verdict

WORDS = {
    Split.PRETRAIN: ("ba", "fe", "wi"),
    Split.TRAIN: ("mo", "ka", "ri", "tu"),
    Split.VALIDATION: ("se", "na"),
    Split.TEST_VALUES: ("lo", "pi", "go"),
    Split.TEST_COMPOSITIONS: ("ve", "du"),
}


class Words:
    name, version, signature_version = "words", 1, "words/1"

    def __init__(self, folder: Path) -> None:
        pass

    def prompts(self, split: Split) -> list[Prompt]:
        return [
            Prompt(f"{split}/{word}", self.name, "say", f"say {word}", {"word": word}, split, "open")
            for word in WORDS[split]
        ]

    def messages(self, prompt: Prompt) -> list[Message]:
        return [{"role": "user", "content": prompt.text}]

    def verify(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Verdict]:
        return [
            Verdict(reward=1.0, reading="word")
            if text.strip("()") == prompt.payload["word"]
            else Verdict(reward=0.0)
            for prompt, text in zip(prompts, texts, strict=True)
        ]

    def signature(self, prompt: Prompt, text: str) -> str:
        return "round" if text.startswith("(") else "plain"

    def readings(self, prompt: Prompt) -> tuple[str, ...]:
        return ("word",)

    def strategies(self, prompt: Prompt) -> dict[str, list[str]]:
        word = prompt.payload["word"]
        return {"word": [word, f"({word})"]}

    def randomise_slot(
        self, prompt: Prompt, answers: Sequence[str], rng: random.Random
    ) -> tuple[str, list[str]]:
        old, new = prompt.payload["word"], rng.choice(WORDS[Split.TRAIN])
        return prompt.text.replace(old, new), [answer.replace(old, new) for answer in answers]

    def corrupt(self, answer: str, rng: random.Random) -> str:
        return f"{answer}?"
