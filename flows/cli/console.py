"""Where things are said: results on stdout, everything else on stderr, JSON for scripts."""

import json
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_WITHOUT_TERMINAL = 160


@cache
def out() -> "Console":
    return _console(stderr=False)


@cache
def err() -> "Console":
    return _console(stderr=True)


def _console(*, stderr: bool) -> "Console":
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr,
        highlight=False,
        soft_wrap=not stream.isatty(),
        width=None if stream.isatty() else WIDTH_WITHOUT_TERMINAL,
    )


def say(text: str) -> None:
    """A line for a person, on stderr, so that stdout stays clean for what was asked."""
    err().print(text, markup=False)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")
