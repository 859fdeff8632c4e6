"""Why an earlier result does not answer a request: what differs between the two."""

from tasks.execute import Request
from tasks.store.keys import leaves, params_of
from tasks.store.manifest import Manifest

SHOWN_CHANGES = 4


def missing_before(from_node: str, node: str, why: str) -> str:
    return (
        f"cannot start from {from_node}: {node}, which comes before it, has no result ({why}); "
        f"run without --from"
    )


def changes(before: Manifest, request: Request) -> list[str]:
    """What differs between a result and a request for the same node: version, parameters, inputs."""
    found = []
    if before.version != request.declaration.version:
        found.append(f"version {before.version} -> {request.declaration.version}")
    code = request.declaration.foreign_code(request.params).versions
    for name in sorted(before.code.keys() | code.keys()):
        if before.code.get(name) != code.get(name):
            found.append(f"{name} version {before.code.get(name, 'unset')} -> {code.get(name, 'unset')}")
    old, new = dict(leaves(before.params)), dict(leaves(params_of(request.params)))
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name) or (name in old) != (name in new):
            found.append(f"{name} {old.get(name, 'unset')} -> {new.get(name, 'unset')}")
    for name in sorted(before.inputs.keys() | request.inputs.keys()):
        if name not in before.inputs or name not in request.inputs:
            found.append(f"input {name} {'added' if name in request.inputs else 'dropped'}")
        elif request.inputs[name].known and request.inputs[name].digest != before.inputs[name].digest:
            found.append(f"input {name} changed")
    more = len(found) - SHOWN_CHANGES
    return found[:SHOWN_CHANGES] + ([f"{more} more changes"] if more > 0 else [])
