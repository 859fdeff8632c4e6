"""The text-to-SQL domain on the music store: questions, verifier, strategies, signatures."""

import json
import random
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from data_contracts.durable import write_atomic
from stages.domains.protocol import Message, Prompt, Split, Verdict
from stages.domains.sql import database, schema
from stages.domains.sql import signature as signatures
from stages.domains.sql.answer import extract_sql
from stages.domains.sql.corruption import corrupt
from stages.domains.sql.families import NUMERIC
from stages.domains.sql.params import SqlParams
from stages.domains.sql.questions import family_of, make_prompts
from stages.domains.sql.sandbox import Refused
from stages.domains.sql.slots import RandomSlots
from stages.domains.sql.verifier import Verifier
from stages.errors import UsageError

VERSION = 1
MANIFEST, QUESTIONS = "manifest.json", "questions.jsonl"


def build(folder: Path, params: SqlParams) -> None:
    """Write the domain's folder: both databases, the questions, and a manifest last."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    database.build(folder)
    prompts = make_prompts(folder, Verifier(folder, params))
    lines = (json.dumps(asdict(prompt), ensure_ascii=False) + "\n" for prompt in prompts)
    write_atomic(folder / QUESTIONS, "".join(lines))
    manifest = {
        "domain": "sql",
        "version": VERSION,
        "signature_version": signatures.VERSION,
        "params": params.model_dump(),
    }
    write_atomic(folder / MANIFEST, json.dumps(manifest, indent=2) + "\n")


class SqlDomain:
    """Opens a folder that `build` wrote. Raises UsageError if it is not one or is of another version."""

    name = "sql"
    version = VERSION
    signature_version = signatures.VERSION

    build = staticmethod(build)

    def __init__(self, folder: Path) -> None:
        path = folder / MANIFEST
        if not path.exists():
            raise UsageError(
                f"{folder} is not a folder of the sql domain: {MANIFEST} is missing; run `prompts`"
            )
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["version"] != VERSION:
            raise UsageError(
                f"{folder} was built by version {manifest['version']} of the sql domain, this is {VERSION}: "
                "run the prompts stage again"
            )
        self.folder = folder
        self.params = SqlParams.model_validate(manifest["params"])
        self._verifier = Verifier(folder, self.params)
        self._all: list[Prompt] | None = None
        self._random_slots: RandomSlots | None = None
        self._plan = lru_cache(maxsize=50_000)(self._plan_of)

    # the protocol

    def prompts(self, split: Split) -> list[Prompt]:
        return [prompt for prompt in self._prompts() if prompt.split == split]

    def messages(self, prompt: Prompt) -> list[Message]:
        text = f"{schema.schema_text()}\n\n{prompt.text}" if self.params.schema_in_prompt else prompt.text
        return [{"role": "user", "content": text}]

    def verify(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Verdict]:
        return [self._verifier.verify(p, t) for p, t in zip(prompts, texts, strict=True)]

    def signature(self, prompt: Prompt, text: str) -> str | None:
        """16 hex digits; the same for the same plan and the same reading, whatever the spelling."""
        reading = self._verifier.verify(prompt, text).reading
        if reading is None:
            return None
        reference = self._verifier.reference(prompt.payload["readings"][reading])
        assert reference is not None
        return signatures.signature(self._plan(extract_sql(text)), reference.digest)

    def readings(self, prompt: Prompt) -> tuple[str, ...]:
        return tuple(prompt.payload["readings"])

    # what pre-training and SFT are made of

    def strategies(self, prompt: Prompt) -> dict[str, list[str]]:
        """Reading -> its correct queries, 3 to 8, the most common idiom first."""
        return family_of(prompt).strategies(prompt.payload["value"])

    def reference(self, prompt: Prompt) -> str:
        """The one query that a data set would give: the plainest of a reading fixed for the prompt."""
        readings = self.readings(prompt)
        chosen = readings[zlib.crc32(prompt.id.encode()) % len(readings)]
        query: str = prompt.payload["readings"][chosen]
        return query

    def corrupt(self, answer: str, rng: random.Random) -> str:
        """A plausible wrong query; by luck one in a hundred is still right."""
        return corrupt(answer, rng)

    def randomise_slot(
        self, prompt: Prompt, answers: Sequence[str], rng: random.Random
    ) -> tuple[str, list[str]]:
        """The prompt's text and the queries with its value replaced by a random one."""
        slots = self._slots()
        old = prompt.payload["value"]
        if prompt.payload["slot"] in NUMERIC:
            new = slots.number(rng)
            return _last(prompt.text, old, new), [_last(sql, f"= {old}", f"= {new}") for sql in answers]
        new = slots.text(rng)
        old, new = f"'{old}'", f"'{new}'"
        return prompt.text.replace(old, new), [sql.replace(old, new) for sql in answers]

    # inside

    def _prompts(self) -> list[Prompt]:
        if self._all is None:
            lines = (self.folder / QUESTIONS).read_text(encoding="utf-8").splitlines()
            raw = [json.loads(line) for line in lines]
            self._all = [Prompt(**{**row, "split": Split(row["split"])}) for row in raw]
        return self._all

    def _slots(self) -> RandomSlots:
        if self._random_slots is None:
            names = {
                p.payload["value"] for p in self.prompts(Split.PRETRAIN) if p.payload["slot"] not in NUMERIC
            }
            self._random_slots = RandomSlots(sorted(names))
        return self._random_slots

    def _plan_of(self, sql: str) -> str:
        try:
            return signatures.normalised_plan(self._verifier.databases[0], sql)
        except Refused as error:
            raise AssertionError(f"a verified query has no plan: {sql}") from error


def _last(text: str, old: str, new: str) -> str:
    head, found, tail = text.rpartition(old)
    return f"{head}{new}{tail}" if found else text
