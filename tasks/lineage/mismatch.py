"""What an audit found to differ from what was recorded."""

from stages.errors import ExitCode, PosttrainError
from tasks.store.manifest import Record

SHOWN = 5


class Mismatch(Record):
    """`path` is the file, or the folder where a whole output is concerned."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class AuditMismatch(PosttrainError):
    """Something on the way back is not what its manifest says; the lineage cannot be trusted as it stands."""

    exit_code = ExitCode.AUDIT_MISMATCH

    def __init__(self, mismatches: list[Mismatch]) -> None:
        self.mismatches = mismatches
        more = f"; and {len(mismatches) - SHOWN} more" if len(mismatches) > SHOWN else ""
        listed = "; ".join(str(mismatch) for mismatch in mismatches[:SHOWN])
        super().__init__(
            f"the audit found {len(mismatches)} mismatch(es): {listed}{more}. "
            "Run the stage again with --force, or restore the file"
        )
