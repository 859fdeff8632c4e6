"""The prompts/1 dataset as prompts again, with the messages that were agreed on when it was written."""

import json
from dataclasses import dataclass
from pathlib import Path

from data_contracts.dataset import read
from stages.domains.protocol import Message, Prompt, Split
from stages.errors import UsageError


@dataclass(frozen=True)
class PromptRow:
    prompt: Prompt
    messages: list[Message]
    ambiguity: str
    readings: int

    def messages_about(self, text: str) -> list[Message]:
        """The same messages with another question in the place of this prompt's text."""
        return [
            Message(role=message["role"], content=message["content"].replace(self.prompt.text, text))
            for message in self.messages
        ]


def read_prompts(folder: Path, split: Split) -> list[PromptRow]:
    """The prompts of one split, in their stored order.

    Raises UsageError if there is none; ContractBreach if the dataset breaks prompts/1.
    """
    rows = [
        PromptRow(
            prompt=Prompt(
                id=row["id"],
                domain=row["domain"],
                capability=row["capability"],
                text=row["text"],
                payload=json.loads(row["payload"]),
                split=Split(row["split"]),
                answer_class=row["answer_class"],
            ),
            messages=row["messages"],
            ambiguity=row["ambiguity"],
            readings=row["readings"],
        )
        for row in read(folder, "prompts/1").to_pylist()
        if row["split"] == split
    ]
    if not rows:
        raise UsageError(f"the prompts have none of split {split}: raise prompts.limits for it")
    return rows
