"""A domain whose verifier does what the text says: hang, die, eat memory, raise, print."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from stages.domains.protocol import Message, Prompt, Split, Verdict


class AwkwardDomain:
    name = "awkward"
    version = 1
    signature_version = "1"

    def __init__(self, folder: Path) -> None:
        if folder.name == "broken":
            raise RuntimeError("this domain cannot be opened")

    def prompts(self, split: Split) -> list[Prompt]:
        return []

    def messages(self, prompt: Prompt) -> list[Message]:
        return []

    def readings(self, prompt: Prompt) -> tuple[str, ...]:
        return ("a",)

    def verify(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Verdict]:
        return [self._verify(text) for text in texts]

    def _verify(self, text: str) -> Verdict:
        what = text.split()[0]
        if what == "hang":
            while True:
                time.sleep(60)
        if what == "spin":
            while True:
                pass
        if what == "die":
            os.kill(os.getpid(), 9)
        if what == "exit":
            sys.exit(0)
        if what == "_exit":
            os._exit(0)
        if what == "eat":
            return Verdict(reward=float(len(bytearray(1 << 40)) > 0))
        if what == "raise":
            raise RuntimeError("no verdict")
        if what == "write":
            Path(text.split()[1]).write_bytes(b"x" * (1 << 20))
        if what == "print":
            print("noise " * 10_000)
        if what == "environment":
            return Verdict(
                reward=float(len([n for n in os.environ if n not in ("PYTHONPATH", "LANG", "LC_CTYPE")]))
            )
        return Verdict(reward=1.0, reading="a")

    def signature(self, prompt: Prompt, text: str) -> str | None:
        return f"{os.getpid()}"
