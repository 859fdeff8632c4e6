"""A domain that a model of a few thousand weights learns in seconds: repeat a name, plain or in brackets.

A bracket is a strategy. An ambiguous prompt may be answered in capitals too, which is its second reading.
`rule` in the payload makes prompts that nothing, everything or no verdict meets.
"""

import random
from collections.abc import Sequence
from pathlib import Path

from stages.domains.protocol import Message, Prompt, Split, Unscorable, Verdict

NAMES = ("mo", "ka", "ri", "tu", "se", "na", "lo", "pi", "go", "ve", "du", "ba")
FORMS = {"plain": "{}", "round": "({})", "angle": "<{}>"}
HELD_OUT = ("zu", "fe", "hy")


class Letters:
    name, version, signature_version = "letters", 1, "letters/1"

    def __init__(self, folder: Path) -> None:
        pass

    def prompts(self, split: Split) -> list[Prompt]:
        return []

    def messages(self, prompt: Prompt) -> list[Message]:
        return [{"role": "user", "content": prompt.text}]

    def readings(self, prompt: Prompt) -> tuple[str, ...]:
        return ("small", "capital") if prompt.payload["ambiguous"] else ("small",)

    def verify(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Verdict]:
        return [self._verdict(prompt, text) for prompt, text in zip(prompts, texts, strict=True)]

    def _verdict(self, prompt: Prompt, text: str) -> Verdict:
        rule = prompt.payload["rule"]
        if rule == "no verdict" or "?" in text:
            return Verdict(unscorable=Unscorable.VERIFIER_ERROR)
        if rule == "everything":
            return Verdict(reward=1.0, reading="small")
        _, inner = self._parse(text)
        for reading in self.readings(prompt) if rule != "nothing" else ():
            if inner == self._word(prompt, reading):
                return Verdict(reward=1.0, reading=reading)
        return Verdict(reward=0.0)

    def signature(self, prompt: Prompt, text: str) -> str | None:
        form, inner = self._parse(text)
        return f"{form}/{'capital' if inner.isupper() else 'small'}"

    def reference(self, prompt: Prompt) -> str:
        return str(prompt.payload["value"])

    def strategies(self, prompt: Prompt) -> dict[str, list[str]]:
        return {
            reading: [form.format(self._word(prompt, reading)) for form in FORMS.values()]
            for reading in self.readings(prompt)
        }

    def randomise_slot(
        self, prompt: Prompt, answers: Sequence[str], rng: random.Random
    ) -> tuple[str, list[str]]:
        old, new = prompt.payload["value"], rng.choice(NAMES)
        changed = [a.replace(old, new).replace(old.upper(), new.upper()) for a in answers]
        return prompt.text.replace(old, new), changed

    def corrupt(self, answer: str, rng: random.Random) -> str:
        return f"?{answer}" if rng.random() < 0.2 else f"{answer}{rng.choice(NAMES)}"

    def _word(self, prompt: Prompt, reading: str) -> str:
        value: str = prompt.payload["value"]
        return value if reading == "small" else value.upper()

    def _parse(self, text: str) -> tuple[str, str]:
        for name, form in FORMS.items():
            before, after = form.split("{}")
            if before and text.startswith(before) and text.endswith(after):
                return name, text[1:-1]
        return "plain", text


class Mute:
    """Judges, but has no answers to show."""

    name, version, signature_version = "mute", 1, "mute/1"

    def __init__(self, folder: Path) -> None:
        pass
