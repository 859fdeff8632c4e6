"""Layers of a recipe: mappings from YAML files and `--set`, merged so that every value's source is known.

Mappings merge key by key; everything else, lists too, replaces what an earlier layer said.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from stages.errors import UsageError

Values = dict[str, Any]


@dataclass(frozen=True)
class Layer:
    """What one source says. `label` names the source in a plan and in an error."""

    label: str
    values: Values


@dataclass(frozen=True)
class Merged:
    """All layers together; `sources` maps the dotted path of each leaf to the label that set it."""

    values: Values
    sources: Mapping[str, str]

    def source(self, path: str) -> str:
        """The label that set `path`, or the last one that set something below or above it; "" if none did."""
        if path in self.sources:
            return self.sources[path]
        below = [label for leaf, label in self.sources.items() if leaf.startswith(path + ".")]
        above = [label for leaf, label in self.sources.items() if path.startswith(leaf + ".")]
        return (below or above or [""])[-1]


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML lets a later duplicate of a key win silently; here it is an error."""


def _mapping_without_duplicates(loader: _UniqueKeyLoader, node: yaml.MappingNode) -> Values:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} is given twice", key_node.start_mark
            )
        seen.add(key)
    return {str(key): value for key, value in loader.construct_mapping(node, deep=True).items()}


_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_duplicates)


def from_text(text: str, label: str) -> Layer:
    """A layer from YAML text. Raises UsageError if it is not YAML or not a mapping of keys."""
    try:
        values = yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).replace('in "<unicode string>", ', "").split())
        raise UsageError(f"{label} is not valid YAML: {reason}") from error
    if values is None:
        return Layer(label, {})
    if not isinstance(values, dict):
        raise UsageError(f"{label} must be a mapping of keys to values, and holds a {type(values).__name__}")
    return Layer(label, values)


def from_file(path: Path) -> Layer:
    """A layer from a user's file. Raises UsageError if it cannot be read."""
    try:
        return from_text(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise UsageError(f"cannot read the recipe {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"the recipe {path} is not a text file") from error


def from_setting(setting: str) -> Layer:
    """A layer from `a.b=value`; the value is read as YAML. Raises UsageError if it has another form."""
    label = f"--set {setting}"
    key, equals, text = setting.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise UsageError(f"--set wants KEY=VALUE such as rl.steps=200, and got {setting!r}")
    try:
        value = yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.YAMLError as error:
        raise UsageError(f"the value of {label} is not valid YAML") from error
    for part in reversed(parts):
        value = {part: value}
    return Layer(label, value)


def merge(layers: Iterable[Layer]) -> Merged:
    """Merge the layers, later ones over earlier ones."""
    values: Values = {}
    sources: dict[str, str] = {}
    for layer in layers:
        values = _merged(values, layer.values, "", layer.label, sources)
    return Merged(values, sources)


def _merged(below: Any, above: Any, path: str, label: str, sources: dict[str, str]) -> Any:
    if isinstance(above, dict) and (above or isinstance(below, dict)):
        sources.pop(path, None)
        result = dict(below) if isinstance(below, dict) else {}
        for key, value in above.items():
            below_it = f"{path}.{key}" if path else str(key)
            result[key] = _merged(result.get(key), value, below_it, label, sources)
        return result
    for covered in [leaf for leaf in sources if leaf.startswith(path + ".")]:
        del sources[covered]
    sources[path] = label
    return above
