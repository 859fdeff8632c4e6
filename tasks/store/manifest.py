"""What the store records about a result, and the small references that travel between stages.

Manifests are the ledger: MLflow, reports and audits are made from them.
"""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from stages.declaration import Kind

SCHEMA_VERSION = 1


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Ref(Record):
    """One output of one result: a few hundred bytes, never data. `digest` is empty while only planned."""

    stage: str
    key: str
    output: str
    digest: str
    kind: Kind
    contract: str | None = None

    @property
    def known(self) -> bool:
        return bool(self.digest)


Outputs = dict[str, Ref]


class InputRecord(Record):
    stage: str
    key: str
    output: str
    digest: str


class FileRecord(Record):
    path: str
    bytes: int
    sha256: str


class OutputRecord(Record):
    kind: Kind
    contract: str | None = None
    digest: str
    files: list[FileRecord]
    rows: int | None = None
    facts: dict[str, Any] = Field(default_factory=dict)


class Provenance(Record):
    """Where a result came from; recorded, never part of the key."""

    run_id: str
    node: str
    flow: str = ""
    flow_run_id: str | None = None
    recipe_digest: str = ""
    git_commit: str | None = None
    git_dirty: bool | None = None
    source_digest: str = ""  # of `sources` together
    sources: dict[str, str] = Field(default_factory=dict)  # digests of the folders that the stage runs from
    environment_digest: str = ""
    host: str = ""
    python: str = ""
    argv: list[str] = Field(default_factory=list)


class Manifest(Record):
    schema_version: int = SCHEMA_VERSION
    stage: str
    version: int
    code: dict[str, str] = Field(default_factory=dict)  # versions of code from outside the stage
    key: str
    params: dict[str, Any]
    inputs: dict[str, InputRecord]
    outputs: dict[str, OutputRecord]
    attempts: int
    seconds: float  # of all attempts together, as far as they could say
    started: datetime
    ended: datetime
    runtime: dict[str, Any]
    provenance: Provenance
    reports: dict[str, Any] = Field(default_factory=dict)

    @property
    def digest(self) -> str:
        """That of the main product: the output which the stage declares first."""
        return next(iter(self.outputs.values())).digest

    def refs(self) -> Outputs:
        return {
            name: Ref(
                stage=self.stage,
                key=self.key,
                output=name,
                digest=record.digest,
                kind=record.kind,
                contract=record.contract,
            )
            for name, record in self.outputs.items()
        }
