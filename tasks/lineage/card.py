"""MODEL_CARD.md of a checkpoint, from its manifest alone."""

from string import Template

from tasks.store.manifest import Manifest

CARD = Template("""\
# $node

Checkpoint of the stage `$stage` (version $version), made by posttrain.

| | |
|---|---|
| digest | `$digest` |
| key | `$key` |
| run, node | `$run`, `$node` |
| architecture | $architecture |
| recipe | `$recipe` |
| git commit | `$commit`$dirty |
| made | $ended, $seconds s in $attempts attempt(s) |

## Made from

$inputs

## Parameters

$params

`posttrain lineage audit $digest --verify` walks back to the base model and re-hashes every file on the way.
""")


def model_card(manifest: Manifest, output: str) -> str:
    """Markdown, a page at most."""
    record, provenance = manifest.outputs[output], manifest.provenance
    inputs = [
        f"- {name}: `{found.stage}/{found.output}` `{found.digest}`"
        for name, found in manifest.inputs.items()
    ]
    return CARD.substitute(
        node=provenance.node,
        stage=manifest.stage,
        version=manifest.version,
        digest=record.digest,
        key=manifest.key,
        run=provenance.run_id,
        architecture=record.facts.get("architecture", "not recorded"),
        recipe=provenance.recipe_digest or "not recorded",
        commit=provenance.git_commit or "not recorded",
        dirty=" with uncommitted changes" if provenance.git_dirty else "",
        ended=f"{manifest.ended:%Y-%m-%d %H:%M}",
        seconds=f"{manifest.seconds:.0f}",
        attempts=manifest.attempts,
        inputs="\n".join(inputs) or "nothing",
        params="\n".join(f"- {name}: `{value}`" for name, value in manifest.params.items()),
    )
