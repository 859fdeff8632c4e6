"""One wrong version of one function, which the tests of its area must notice."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """`old`, which occurs exactly once in the file, replaced by `new`; the name says what is wrong then."""

    name: str
    file: str  # relative to the repository's root
    old: str
    new: str

    def applied(self, source: str) -> str:
        """The wrong source. Raises ValueError where `old` is not there exactly once: it went stale."""
        if (found := source.count(self.old)) != 1:
            raise ValueError(f"{self.name}: {self.file} contains the text to replace {found} times, not once")
        if self.old == self.new:
            raise ValueError(f"{self.name}: the replacement changes nothing")
        return source.replace(self.old, self.new)

    def apply(self, tree: Path) -> None:
        """Write the wrong version into a copy of the repository."""
        target = tree / self.file
        target.write_text(self.applied(target.read_text()))
