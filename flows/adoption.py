"""A model that the user names becomes parameters of the stage `adopt`."""

from pathlib import Path

from stages.adopt.params import AdoptParams
from stages.declaration import Kind
from stages.errors import UsageError


def adopted(source: str, seed: int = 0) -> AdoptParams:
    """Parameters that adopt `source`, a local folder or a hub id.

    A folder is told by its content, so that changed weights make a new key. Raises UsageError for a path
    that holds no checkpoint.
    """
    folder = Path(source).expanduser()
    looks_local = source.startswith((".", "/", "~")) or folder.exists()
    if not looks_local:
        return AdoptParams(source=source, seed=seed)
    if not (folder / "config.json").is_file():
        raise UsageError(f"{source} is not a Hugging Face checkpoint: there is no config.json in it")
    from tasks.store.digest import digest

    return AdoptParams(
        source=str(folder.absolute()), content=digest(Kind.CHECKPOINT, folder.absolute()), seed=seed
    )
