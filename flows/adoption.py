"""A model that the user names becomes parameters of the stage `adopt`."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from stages.adopt.params import AdoptParams
from stages.declaration import Kind
from stages.errors import UsageError


class Brought(BaseModel):
    """A checkpoint from elsewhere, as a recipe names it when there is more to say than its source."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str = Field(min_length=1, description="a local Hugging Face folder, or a hub id")
    rl_steps: int = Field(0, ge=0, description="steps of RL that the model has behind it, as its maker says")


def adopted(model: str | Brought) -> AdoptParams:
    """Parameters that adopt `model`; a string is its source.

    A folder is told by its content, so that changed weights make a new key. Raises UsageError for a path
    that holds no checkpoint.
    """
    brought = Brought(source=model) if isinstance(model, str) else model
    folder = Path(brought.source).expanduser()
    looks_local = brought.source.startswith((".", "/", "~")) or folder.exists()
    if not looks_local:
        return AdoptParams(source=brought.source, rl_steps=brought.rl_steps)
    if not (folder / "config.json").is_file():
        raise UsageError(f"{brought.source} is not a Hugging Face checkpoint: there is no config.json in it")
    from tasks.store.digest import digest

    return AdoptParams(
        source=str(folder.absolute()),
        content=digest(Kind.CHECKPOINT, folder.absolute()),
        rl_steps=brought.rl_steps,
    )
