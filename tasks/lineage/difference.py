"""Where the lineages of two artefacts part: the first ancestor that differs, and in which of its fields."""

from typing import Any

from tasks.lineage.ancestry import Ancestry
from tasks.store.keys import leaves
from tasks.store.manifest import Manifest, Record

COMPARED_PROVENANCE = ("recipe_digest", "git_commit", "environment_digest", "python", "host")


class FieldDifference(Record):
    """`a` and `b` as text; a dash where one side has no such field."""

    field: str
    a: str
    b: str


class StageDifference(Record):
    """A node whose results differ. `inherited` when all that differs in its identity is what it was given."""

    node: str
    stage: str
    inherited: bool
    fields: tuple[FieldDifference, ...]


class Difference(Record):
    a: str
    b: str
    stages: tuple[StageDifference, ...]  # producers first

    @property
    def first(self) -> StageDifference | None:
        """The first ancestor that differs; None when the lineages are the same."""
        return self.stages[0] if self.stages else None

    def lines(self) -> list[str]:
        """For people."""
        if self.first is None:
            return [f"{self.a} and {self.b} have the same lineage"]
        lines = [f"{self.a} and {self.b} first differ in {self.first.node}:"]
        lines += [f"  {found.field}: {found.a} | {found.b}" for found in self.first.fields]
        own = [stage.node for stage in self.stages[1:] if not stage.inherited]
        inherited = [stage.node for stage in self.stages[1:] if stage.inherited]
        if own:
            lines.append(f"also differing by themselves: {', '.join(own)}")
        if inherited:
            lines.append(f"differing only by what they were given: {', '.join(inherited)}")
        return lines


def compare(a: str, ancestry_a: Ancestry, b: str, ancestry_b: Ancestry) -> Difference:
    """Results are paired by their node."""
    of_a = {_node(manifest): manifest for manifest in ancestry_a.manifests}
    of_b = {_node(manifest): manifest for manifest in ancestry_b.manifests}
    nodes = [*of_a, *(node for node in of_b if node not in of_a)]
    found = [_compare(node, of_a.get(node), of_b.get(node)) for node in nodes]
    return Difference(a=a, b=b, stages=tuple(stage for stage in found if stage))


def _node(manifest: Manifest) -> str:
    return manifest.provenance.node or manifest.stage


def _compare(node: str, a: Manifest | None, b: Manifest | None) -> StageDifference | None:
    if a is None or b is None:
        present = a or b
        assert present is not None
        fields = [FieldDifference(field="key", a=a.key[:12] if a else "-", b=b.key[:12] if b else "-")]
        return StageDifference(node=node, stage=present.stage, inherited=False, fields=tuple(fields))
    own = _fields(_identity(a), _identity(b))
    given = _fields(_inputs(a), _inputs(b))
    results = _fields(_outputs(a), _outputs(b))
    if not (own or given or results):
        return None
    inherited = bool(given) and not own
    told = [*own, *given, *([] if own or given else results)]
    if not inherited:
        told += _fields(_provenance(a), _provenance(b))
    return StageDifference(node=node, stage=b.stage, inherited=inherited, fields=tuple(told))


def _fields(a: dict[str, Any], b: dict[str, Any]) -> list[FieldDifference]:
    names = dict.fromkeys([*a, *b])
    return [
        FieldDifference(field=name, a=str(a.get(name, "-")), b=str(b.get(name, "-")))
        for name in names
        if a.get(name) != b.get(name)
    ]


def _identity(manifest: Manifest) -> dict[str, Any]:
    params = {f"params.{name}": value for name, value in leaves(manifest.params)}
    code = {f"code.{name}": version for name, version in manifest.code.items()}
    return {"stage": manifest.stage, "version": manifest.version, **code, **params}


def _inputs(manifest: Manifest) -> dict[str, Any]:
    return {f"inputs.{name}": record.digest for name, record in manifest.inputs.items()}


def _outputs(manifest: Manifest) -> dict[str, Any]:
    """Equal keys and unequal results: a stage that does not repeat, or another environment."""
    return {f"outputs.{name}": output.digest for name, output in manifest.outputs.items()}


def _provenance(manifest: Manifest) -> dict[str, Any]:
    sources = {f"provenance.source {name}": digest for name, digest in manifest.provenance.sources.items()}
    return {
        f"provenance.{name}": getattr(manifest.provenance, name) for name in COMPARED_PROVENANCE
    } | sources
