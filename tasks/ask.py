"""One question to one model: finds its folders and asks in a process that may import torch."""

import subprocess
import sys
from pathlib import Path

from pydantic import ValidationError

from stages.engines.params import Sampling
from stages.errors import ExitCode, PosttrainError, UsageError
from stages.sampling.ask import Answer, Question, Refusal
from tasks.lineage.ancestry import walk
from tasks.lineage.resolve import resolve
from tasks.process.command import stage_environment
from tasks.store.home import Home
from tasks.store.manifest import Manifest, Ref
from tasks.store.objects import Store

PROMPTS = "prompts"
TIMEOUT_S = 600


class AskFailed(PosttrainError):
    """The process that samples ended with an error."""


def checkpoint_folder(home: Home, target: str) -> tuple[Path, Ref | None]:
    """The folder of a model, and its place in the store unless it is any other Hugging Face folder.

    Raises UsageError for a target that names no checkpoint.
    """
    folder = Path(target).expanduser()
    if (folder / "config.json").is_file():
        try:
            return folder, resolve(home, target).ref
        except UsageError:  # not made here; it can be asked all the same
            return folder, None
    ref = resolve(home, target).ref
    path = Store(home).path(ref)
    if not (path / "config.json").is_file():
        raise UsageError(f"{target} is {ref.stage}/{ref.output}, which is not a checkpoint")
    return path, ref


def prompts_of(home: Home, model: Ref | None) -> Manifest:
    """The result of the stage `prompts` that the model was made with, else the newest one.

    Raises UsageError when this home has none.
    """
    store = Store(home)
    ancestors = walk(store, model).manifests if model else ()
    own = [manifest for manifest in ancestors if manifest.stage == PROMPTS]
    found = own or [manifest for manifest in store.manifests() if manifest.stage == PROMPTS]
    if not found:
        raise UsageError(f"{home.root} has no prompts yet: start with `posttrain run text2sql`")
    return max(found, key=lambda manifest: manifest.ended)


def ask(home: Home, target: str, text: str, n: int, temperature: float, seed: int) -> Answer:
    """Raises UsageError or AskFailed with what the process said."""
    folder, ref = checkpoint_folder(home, target)
    prompts = prompts_of(home, ref)
    store, outputs = Store(home), prompts.refs()
    question = Question(
        checkpoint=folder.absolute(),
        prompts=store.path(outputs["prompts"]),
        domain=store.path(outputs["domain"]),
        text=text,
        n=n,
        seed=seed,
        sampling=Sampling(temperature=temperature),
    )
    try:
        asked = subprocess.run(
            [sys.executable, "-m", "stages.sampling.ask"],
            input=question.model_dump_json(),
            capture_output=True,
            text=True,
            env=stage_environment(prompts.stage, question.runtime),
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise AskFailed(f"sampling {target} took longer than {TIMEOUT_S} s: ask for fewer answers") from error
    said = (asked.stdout.strip().splitlines() or [""])[-1]
    if asked.returncode == ExitCode.OK:
        return Answer.model_validate_json(said)
    try:
        why = Refusal.model_validate_json(said).error
    except ValidationError:
        why = (asked.stderr.strip().splitlines() or [f"exit code {asked.returncode}"])[-1]
    failure = UsageError if asked.returncode == ExitCode.USAGE else AskFailed
    raise failure(f"sampling {target} failed: {why}")
