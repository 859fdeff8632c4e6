"""Which groups are young enough to learn from (methods.md 9(b), the staleness filter)."""

from collections.abc import Sequence

from stages.errors import GuardError


def fresh_groups_P(
    versions: Sequence[Sequence[Sequence[int]]], policy_version: int, max_staleness: int
) -> list[bool]:
    """Whether each group, whole, is young enough: its oldest token counts, of whichever sample.

    Args:
        versions: the weight version of every token of every sample of every group.
        max_staleness: allowed updates between those weights and the policy's; 0 is on-policy only.

    Raises GuardError for a group without tokens and for versions that do not exist yet.
    """
    fresh = []
    for group in versions:
        seen = {version for sample in group for version in sample}
        if not seen:
            raise GuardError(
                "a group has no sampled token and so no weight version: drop the prompt, or sample it again"
            )
        if max(seen) > policy_version:
            raise GuardError(
                f"a token was drawn by version {max(seen)}, newer than the policy's {policy_version}: "
                "resume the trainer and the sampler from the same step"
            )
        fresh.append(policy_version - min(seen) <= max_staleness)
    return fresh
