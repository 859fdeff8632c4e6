"""Whether a domain's signature tells strategies apart at all.

A signature that is a function of the final answer only makes all right answers of a reading one strategy:
the archive would hold one elite a prompt and replay would have nothing to preserve (methods.md 1(c)4).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from stages.errors import GuardError
from stages.sampling.judged import Judged

ENOUGH = 20  # readings that were answered in several ways before the signature is judged


@dataclass
class Granularity:
    several_texts: int = 0  # (group, reading) with right answers of different text
    several_strategies: int = 0  # of those, with different signatures

    def add(self, group: Sequence[Judged]) -> None:
        texts, signatures = defaultdict(set), defaultdict(set)
        for sample in group:
            if sample.correct:
                reading = sample.judgement.verdict.reading
                texts[reading].add(sample.text)
                signatures[reading].add(sample.judgement.signature)
        for reading, different in texts.items():
            if len(different) > 1:
                self.several_texts += 1
                self.several_strategies += len(signatures[reading]) > 1

    def require(self) -> None:
        """Raises GuardError if many readings were answered in several ways and all of them look alike."""
        if self.several_texts >= ENOUGH and not self.several_strategies:
            raise GuardError(
                f"{self.several_texts} times the base answered rightly in different ways, and the domain's "
                "signature never told two of them apart: it sees the answer only, so there is no strategy to "
                "keep; let it see how the answer was reached"
            )
