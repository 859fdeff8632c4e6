"""POSTTRAIN_HOME: the one folder that holds everything a run makes; removing it removes all."""

import os
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "POSTTRAIN_HOME"
DEFAULT = ".posttrain"


@dataclass(frozen=True)
class Home:
    """The layout below the root; folders are made by those who write into them."""

    root: Path

    @classmethod
    def from_environment(cls) -> "Home":
        """`$POSTTRAIN_HOME`, or `.posttrain/` in the working directory; always absolute."""
        return cls(Path(os.environ.get(VARIABLE) or DEFAULT).expanduser().absolute())

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    @property
    def prefect(self) -> Path:
        return self.root / "prefect"

    @property
    def mlflow(self) -> Path:
        return self.root / "mlflow"
