"""What samples a step: the trainer's weights, or those of some steps ago, as an asynchronous sampler would.

The engine holds exactly the weights that drew the step's samples until the next step, so that their whole
distribution can be asked for.
"""

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from stages.engines.protocol import RolloutEngine

FILE = "sampler.safetensors"


class Sampler:
    """Keeps the weights of the last `lag` steps, and gives the engine the oldest."""

    def __init__(self, engine: RolloutEngine, lag: int) -> None:
        self.engine = engine
        self.lag = lag
        self.kept: dict[int, Mapping[str, Tensor]] = {}

    def refresh(self, weights: Mapping[str, Tensor], step: int) -> int:
        """Load what samples `step`, of which `weights` are the trainer's; returns the version it has."""
        if not self.lag:
            self.engine.load_weights(weights, step)
            return step
        self.kept[step] = {name: tensor.detach().clone() for name, tensor in weights.items()}
        for version in sorted(self.kept)[: -self.lag - 1]:
            del self.kept[version]
        oldest = min(self.kept)
        self.engine.load_weights(self.kept[oldest], oldest)
        return oldest

    def save(self, folder: Path) -> None:
        tensors = {
            f"{version}/{name}": tensor
            for version, weights in self.kept.items()
            for name, tensor in weights.items()
        }
        save_file(tensors, folder / FILE)

    def load(self, folder: Path) -> None:
        kept: dict[int, dict[str, Tensor]] = {}
        for key, tensor in load_file(folder / FILE).items():
            version, name = key.split("/", 1)
            kept.setdefault(int(version), {})[name] = tensor
        self.kept = dict(kept)
