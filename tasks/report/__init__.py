"""One self-contained HTML page a run: what came out, why it was promoted or not, and what to look at."""

from tasks.report.page import write

__all__ = ["write"]
