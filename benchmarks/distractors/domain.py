"""A letter is to be repeated; the digits that follow it in an answer do not count.

Digits follow a right letter in other proportions than a wrong one. So a policy that has learnt to write this
carries on differently after prefixes of different value, at positions that no reward depends on: an
estimator moves them only by mistake.
"""

import random
from collections.abc import Sequence
from pathlib import Path

from stages.domains.protocol import Message, Prompt, Split, Verdict

LETTERS = "abcdefgh"
DIGITS = "01234567"
DISTRACTORS = 12  # digits of a completion, one token each
AFTER_RIGHT = (8.0, 4.0, 2.0, 1.0, 1.0, 0.5, 0.3, 0.2)  # weights of the digits
AFTER_WRONG = (0.3, 0.5, 1.0, 2.0, 1.0, 4.0, 0.2, 8.0)


def completion(letter: str, right: bool, rng: random.Random) -> str:
    """A letter with digits drawn from the distribution that the base learns."""
    return letter + "".join(rng.choices(DIGITS, AFTER_RIGHT if right else AFTER_WRONG, k=DISTRACTORS))


class Distractors:
    name, version, signature_version = "distractors", 1, "distractors/1"

    def __init__(self, folder: Path) -> None:
        pass

    def prompts(self, split: Split) -> list[Prompt]:
        """The same letters in both splits: nothing is held out, nothing generalises."""
        if split not in (Split.TRAIN, Split.VALIDATION):
            return []
        return [
            Prompt(
                id=f"{split}/{letter}",
                domain=self.name,
                capability="vowel" if letter in "aeiou" else "consonant",
                text=f"copy:{letter}",
                payload={"letter": letter},
                split=split,
                answer_class=f"letter:{len(LETTERS)}",
            )
            for letter in LETTERS
        ]

    def messages(self, prompt: Prompt) -> list[Message]:
        return [{"role": "user", "content": prompt.text}]

    def verify(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Verdict]:
        """By the first character alone."""
        return [
            Verdict(reward=1.0, reading="letter")
            if text.startswith(prompt.payload["letter"])
            else Verdict(reward=0.0)
            for prompt, text in zip(prompts, texts, strict=True)
        ]

    def signature(self, prompt: Prompt, text: str) -> str:
        return text[1:2]

    def readings(self, prompt: Prompt) -> tuple[str, ...]:
        return ("letter",)

    def strategies(self, prompt: Prompt) -> dict[str, list[str]]:
        letter = prompt.payload["letter"]
        return {"letter": [completion(letter, True, random.Random(prompt.id))]}

    def randomise_slot(
        self, prompt: Prompt, answers: Sequence[str], rng: random.Random
    ) -> tuple[str, list[str]]:
        """The slot are the digits: every row of the base's mixture has new ones."""
        return prompt.text, [completion(answer[0], True, rng) for answer in answers]

    def corrupt(self, answer: str, rng: random.Random) -> str:
        """Another letter, with digits of its own."""
        return completion(rng.choice(LETTERS.replace(answer[0], "")), False, rng)
