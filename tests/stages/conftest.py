"""A small genuine world for whole training stages: the letters domain, its prompts, models that learned it.

Heavy imports are inside, because tests of torch-free stages share this file.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from stages.context import StageContext
from stages.declaration import StageParams
from stages.errors import StageStopped
from stages.spec import EventKind, Runtime, StageSpec

sys.path.append(str(Path(__file__).parent / "letters"))  # where a verifier's worker looks as well
DOMAIN = "letters_domain:Letters"
NEVER_S = 3600.0


class Recorded(StageContext[Any]):
    """Keeps what it emits, besides doing it."""

    def __init__(self, spec: StageSpec, params: StageParams) -> None:
        super().__init__(spec, params)
        self.notices: list[str] = []

    def emit(self, kind: EventKind, **event: Any) -> None:
        if kind is EventKind.NOTICE:
            self.notices.append(event["text"])
        super().emit(kind, **event)


class StoppedAtEachStep(Recorded):
    """As if SIGTERM came during every step: one step an attempt."""

    def __init__(self, spec: StageSpec, params: StageParams) -> None:
        super().__init__(spec, params)
        self._stop_asked = True


class Killed(Exception):
    pass


class KilledAtStep2(Recorded):
    """Everything that was written until then is on disk; step 2 is not saved."""

    def log(self, step: int, **scalars: Any) -> None:
        super().log(step, **scalars)
        if step == 2:
            raise Killed


@dataclass(frozen=True)
class Attempt:
    """A stage in one place: contexts for its attempts, and what it left."""

    root: Path
    params: StageParams
    inputs: Mapping[str, Path]
    runtime: Runtime

    def context(self, kind: type[Recorded] = Recorded) -> Recorded:
        work = self.root / "work"
        work.mkdir(parents=True, exist_ok=True)
        spec = StageSpec(
            stage="letters",
            node="letters",
            attempt=1,
            params={},
            runtime=self.runtime,
            inputs=dict(self.inputs),
            work=work,
            out=self.root / "out",
        )
        return kind(spec, self.params)

    def stopped_at_each_step(self, run: Callable[[Any], None]) -> int:
        """Runs to the end with a stop and a fresh start at every boundary; how often it stopped."""
        for stops in range(100):
            try:
                run(self.context(StoppedAtEachStep))
            except StageStopped:
                continue
            return stops
        raise AssertionError("the stage does not come to its end")

    def killed(self, run: Callable[[Any], None]) -> None:
        """Runs until the process would die while it logs step 2."""
        with pytest.raises(Killed):
            run(self.context(KilledAtStep2))

    def out(self, name: str) -> Path:
        return self.root / "out" / name

    def has_weights_of(self, other: Path) -> bool:
        """Bit for bit."""
        import torch
        from safetensors.torch import load_file

        own = load_file(self.out("checkpoint") / "model.safetensors")
        others = load_file(other / "model.safetensors")
        return own.keys() == others.keys() and all(torch.equal(own[name], others[name]) for name in own)

    def metrics(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.root / "work" / "metrics.jsonl").read_text().splitlines()]


def prompt_row(split: str, value: str, ambiguous: bool = False, rule: str = "") -> dict[str, Any]:
    text = f"say {value} {rule}".strip()
    return {
        "id": f"{split}/{value}/{rule}",
        "domain": "letters",
        "capability": "ambiguous" if ambiguous else "clear",
        "text": text,
        "messages": [{"role": "user", "content": text}],
        "payload": json.dumps({"value": value, "ambiguous": ambiguous, "rule": rule}),
        "split": split,
        "answer_class": "open",
        "ambiguity": "C" if ambiguous else "",
        "readings": 2 if ambiguous else 1,
    }


class World:
    """Folders that stages take as inputs."""

    def __init__(self, root: Path) -> None:
        from letters_domain import HELD_OUT, NAMES

        from stages.prompts.tokenizer import save_tokenizer, train_tokenizer

        self.root = root
        self.held_out = HELD_OUT
        self.values = NAMES
        self.domain = self.domain_of("domain", DOMAIN)
        names = [*NAMES, *HELD_OUT]
        words = ["say", "say", *names, *(f" {name}" for name in names), *(name.upper() for name in names)]
        self.tokenizer = train_tokenizer(words * 3, 320)
        save_tokenizer(self.tokenizer, root / "tokenizer")
        self.prompts = self.write_prompts(
            "prompts",
            [
                *(
                    prompt_row(split, value, ambiguous=place % 3 == 0)
                    for split in ("pretrain", "train")
                    for place, value in enumerate(self.values)
                ),
                *(prompt_row("validation", value) for value in NAMES[:6]),
                *(prompt_row("test-values", value) for value in HELD_OUT),
            ],
        )

    def domain_of(self, folder: str, name: str) -> Path:
        """The folder of a domain that needs nothing besides its name."""
        from stages.domains.registry import write_name

        (self.root / folder).mkdir()
        write_name(self.root / folder, name)
        return self.root / folder

    def write_prompts(self, name: str, rows: list[dict[str, Any]]) -> Path:
        from data_contracts.dataset import DatasetWriter

        with DatasetWriter(self.root / name, "prompts/1", {}) as writer:
            writer.write(rows)
        return self.root / name

    def rules(self, name: str, *rules: str) -> Path:
        """Prompts of training, one for each rule ("" is an ordinary one), and ordinary validation."""
        rows = [
            prompt_row("train", value, rule=rule) for value, rule in zip(self.values, rules, strict=False)
        ]
        return self.write_prompts(name, [*rows, *(prompt_row("validation", v) for v in self.values[:3])])

    def random_model(self, name: str, seed: int, hidden: int = 32, tokenizer: Any = None) -> Path:
        from data_contracts.checkpoint import TrainingRecord
        from stages.engines.checkpoint import export, new_llama
        from stages.engines.params import ModelShape

        tokenizer = tokenizer or self.tokenizer
        shape = ModelShape(hidden=hidden, layers=1, heads=2, intermediate=48, max_positions=64)
        export(new_llama(shape, tokenizer, seed), tokenizer, TrainingRecord(), self.root / name)
        return self.root / name

    def with_record(self, checkpoint: Path, name: str, **changes: Any) -> Path:
        """A copy of a checkpoint with another history."""
        import shutil

        from data_contracts.checkpoint import read_record, write_record

        copy = self.root / name
        shutil.copytree(checkpoint, copy, dirs_exist_ok=True)
        write_record(copy, replace(read_record(copy), **changes))
        return copy

    def base_params(self, **changes: Any) -> Any:
        from stages.base.params import BaseParams, Mixture
        from stages.engines.params import ModelShape, OptimizerParams

        return BaseParams(
            shape=ModelShape(hidden=32, layers=1, heads=2, intermediate=48, max_positions=64),
            mixture=Mixture(wrong_share=0.25),
            steps=60,
            rows_per_step=32,
            optimizer=OptimizerParams(learning_rate=2e-2, warmup_steps=5),
        ).model_copy(update=changes)

    def archive_params(self, **changes: Any) -> Any:
        from stages.archive.params import ArchiveParams
        from stages.engines.params import Sampling

        return ArchiveParams(
            prompts=None,
            samples_per_round=8,
            patience=2,
            max_rounds=4,
            prompts_per_part=4,
            sampling=Sampling(max_new_tokens=8),
        ).model_copy(update=changes)

    def attempt(
        self, root: Path, params: StageParams, runtime: Mapping[str, Any] | None = None, **inputs: Path
    ) -> Attempt:
        given = {"domain": self.domain, "prompts": self.prompts, **inputs}
        settings = {"threads": 1, "save_every_s": NEVER_S, **(runtime or {})}
        return Attempt(root, params, given, Runtime(**settings))


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("letters"))


@pytest.fixture(scope="session")
def pretrained(world: World, tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """The stage `base`, run once for everybody."""
    from stages.base.stage import run

    tokenizer = world.root / "tokenizer"
    attempt = world.attempt(tmp_path_factory.mktemp("base"), world.base_params(), tokenizer=tokenizer)
    run(attempt.context())
    return attempt


@pytest.fixture(scope="session")
def base(pretrained: Attempt) -> Path:
    """A checkpoint that gives a right answer now and then, in all forms."""
    return pretrained.out("checkpoint")


@pytest.fixture(scope="session")
def archived(world: World, base: Path, tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """The stage `archive`, run once for everybody."""
    from stages.archive.stage import run

    attempt = world.attempt(tmp_path_factory.mktemp("archive"), world.archive_params(), base=base)
    run(attempt.context())
    return attempt


@pytest.fixture(scope="session")
def teacher(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stage `teacher`, run once for everybody: a wider model, trained on clean rows."""
    from stages.base.params import Mixture
    from stages.engines.params import ModelShape
    from stages.teacher.params import TeacherParams
    from stages.teacher.stage import run

    shape = ModelShape(hidden=40, layers=1, heads=2, intermediate=64, max_positions=64)
    clean = Mixture(wrong_share=0.0, strategy_skew=0.8)
    params = TeacherParams(**{**dict(world.base_params()), "shape": shape, "mixture": clean})
    attempt = world.attempt(tmp_path_factory.mktemp("teacher"), params, tokenizer=world.root / "tokenizer")
    run(attempt.context())
    return attempt.out("checkpoint")


@pytest.fixture(scope="session")
def mixture(world: World) -> Path:
    """A checkpoint of a mixture of experts with random weights."""
    import torch
    from transformers import MixtralConfig, MixtralForCausalLM

    from data_contracts.checkpoint import TrainingRecord
    from stages.engines.checkpoint import export

    torch.manual_seed(0)
    config = MixtralConfig(
        vocab_size=len(world.tokenizer),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        num_local_experts=4,
        num_experts_per_tok=1,
        bos_token_id=None,
        eos_token_id=world.tokenizer.eos_token_id,
        pad_token_id=world.tokenizer.pad_token_id,
    )
    export(MixtralForCausalLM(config), world.tokenizer, TrainingRecord(), world.root / "mixture")
    return world.root / "mixture"
