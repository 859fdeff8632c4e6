"""What must be equal on both sides of a stage: tokenizer, chat template, EOS and PAD ids, vocabulary.

Token ids travel from the sampler to the loss untouched, so one stage sees one tokenizer: that of its first
checkpoint input, else of a tokenizer folder among its inputs, else of the checkpoint that it writes. What
comes out has the architecture of a checkpoint that went in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from data_contracts import dataset
from data_contracts.breach import Breach, ContractBreach
from data_contracts.checkpoint import AGREED, CheckpointFacts, chat_template_digest, facts, tokenizer_digest
from data_contracts.contract import Key
from stages.declaration import Artefact, Declaration, Kind


@dataclass(frozen=True)
class Reference:
    """What the stage's artefacts are held against; None is not known from its source."""

    source: str
    tokenizer_digest: str
    chat_template_digest: str | None = None
    eos_ids: tuple[int, ...] | None = None
    pad_id: int | None = None
    vocabulary_size: int | None = None

    @classmethod
    def of_checkpoint(cls, source: str, found: CheckpointFacts) -> "Reference":
        return cls(source, *(getattr(found, name) for name in AGREED))


def reference(declaration: Declaration, inputs: Mapping[str, Path]) -> Reference | None:
    """None if no input has a tokenizer."""
    checkpoints = _of_kind(declaration.inputs, inputs, Kind.CHECKPOINT)
    for name, folder in checkpoints.items():
        return Reference.of_checkpoint(f"input {name}", facts(folder))
    for name, folder in _of_kind(declaration.inputs, inputs, Kind.FILES).items():
        if (folder / "tokenizer.json").exists():
            template = chat_template_digest(folder) or None
            return Reference(f"input {name}", tokenizer_digest(folder), template)
    return None


def check_inputs(declaration: Declaration, node: str, inputs: Mapping[str, Path]) -> None:
    """Before any work: inputs that exchange tokens agree. Raises ContractBreach with the node's name."""
    agreed = reference(declaration, inputs)
    if agreed is None:
        return
    breaches = []
    for name, folder in _of_kind(declaration.inputs, inputs, Kind.CHECKPOINT).items():
        breaches += checkpoint_breaches(facts(folder), agreed, f"input {name}")
    for name, folder in _of_kind(declaration.inputs, inputs, Kind.DATASET).items():
        breaches += metadata_breaches(dataset.metadata(folder), agreed, f"input {name}")
    if breaches:
        raise ContractBreach("the agreement of its inputs", breaches, node)


def checkpoint_breaches(found: CheckpointFacts, agreed: Reference, name: str) -> list[Breach]:
    return [
        Breach(
            field,
            f"equal to that of {agreed.source}",
            detail=f"{name} has {have!r}, {agreed.source} {want!r}",
        )
        for field in AGREED
        if (have := getattr(found, field)) != (want := getattr(agreed, field))
        and not (want is None and agreed.vocabulary_size is None)  # a tokenizer folder does not say
    ]


def metadata_breaches(metadata: Mapping[str, str], agreed: Reference, name: str) -> list[Breach]:
    """A dataset's tokenizer and vocabulary, where it names them, are the stage's."""
    wanted = {Key.TOKENIZER: agreed.tokenizer_digest}
    if agreed.vocabulary_size is not None:
        wanted[Key.VOCABULARY] = str(agreed.vocabulary_size)
    return [
        Breach(
            key,
            f"equal to that of {agreed.source}",
            detail=f"{name} has {metadata[key]}, {agreed.source} {want}",
        )
        for key, want in wanted.items()
        if key in metadata and metadata[key] != want
    ]


def architecture_breaches(
    declaration: Declaration, inputs: Mapping[str, Path], found: CheckpointFacts
) -> list[Breach]:
    """An output checkpoint is of the architecture of one that went in, if any did."""
    folders = _of_kind(declaration.inputs, inputs, Kind.CHECKPOINT)
    known = {facts(folder).architecture for folder in folders.values()}
    if not known or found.architecture in known:
        return []
    return [
        Breach("architecture", f"one of {', '.join(sorted(known))}", detail=f"found {found.architecture}")
    ]


def _of_kind(declared: Mapping[str, Artefact], given: Mapping[str, Path], kind: Kind) -> dict[str, Path]:
    """In the order of the declaration."""
    return {
        name: given[name] for name, artefact in declared.items() if name in given and artefact.kind is kind
    }
