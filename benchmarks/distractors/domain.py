"""One letter of eight is right, whatever the item; the digits that follow a letter do not count.

Digits follow the right letter in other proportions than a wrong one. So a policy that writes as the base does
carries on differently after prefixes of different value, at positions that no reward depends on: an
estimator moves them by mistake only. The same letter is right for every item, so that a small base learns all
there is to learn; one that does not moves everywhere while it goes on learning.
"""

import random
from collections.abc import Sequence
from pathlib import Path

from stages.domains.protocol import Message, Prompt, Split, Verdict

LETTERS = "abcdefgh"
RIGHT = "a"
ITEMS = 8
DIGITS = "01234567"
DISTRACTORS = 12  # digits of a completion, one token each
AFTER_RIGHT = (8.0, 4.0, 2.0, 1.0, 1.0, 0.5, 0.3, 0.2)  # weights of the digits
AFTER_WRONG = (0.3, 0.5, 1.0, 2.0, 1.0, 4.0, 0.2, 8.0)


def completion(letter: str, rng: random.Random) -> str:
    """A letter with digits drawn from the distribution that the base learns."""
    weights = AFTER_RIGHT if letter == RIGHT else AFTER_WRONG
    return letter + "".join(rng.choices(DIGITS, weights, k=DISTRACTORS))


class Distractors:
    name, version, signature_version = "distractors", 1, "distractors/1"

    def __init__(self, folder: Path) -> None:
        pass

    def prompts(self, split: Split) -> list[Prompt]:
        """The same items in both splits: nothing is held out, nothing generalises."""
        if split not in (Split.TRAIN, Split.VALIDATION):
            return []
        return [
            Prompt(
                id=f"{split}/{item}",
                domain=self.name,
                capability="even" if item % 2 == 0 else "odd",
                text=f"item {item}",
                payload={},
                split=split,
                answer_class=f"letter:{len(LETTERS)}",
            )
            for item in range(ITEMS)
        ]

    def messages(self, prompt: Prompt) -> list[Message]:
        return [{"role": "user", "content": prompt.text}]

    def verify(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Verdict]:
        """By the first character alone."""
        return [
            Verdict(reward=1.0, reading="letter") if text.startswith(RIGHT) else Verdict(reward=0.0)
            for text in texts
        ]

    def signature(self, prompt: Prompt, text: str) -> str:
        return text[1:2]

    def readings(self, prompt: Prompt) -> tuple[str, ...]:
        return ("letter",)

    def strategies(self, prompt: Prompt) -> dict[str, list[str]]:
        return {"letter": [completion(RIGHT, random.Random(prompt.id))]}

    def randomise_slot(
        self, prompt: Prompt, answers: Sequence[str], rng: random.Random
    ) -> tuple[str, list[str]]:
        """The slot are the digits: every row of the base's mixture has new ones."""
        return prompt.text, [completion(RIGHT, rng) for _ in answers]

    def corrupt(self, answer: str, rng: random.Random) -> str:
        """A wrong letter, with digits of its own."""
        return completion(rng.choice(LETTERS.replace(RIGHT, "")), rng)
