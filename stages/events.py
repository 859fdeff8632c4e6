"""The pipe on which a stage's process speaks to the one that started it: a line of JSON for each event."""

import os
from typing import Any

from stages.spec import EVENTS_FD, Event, EventKind


class Events:
    """Says nothing when the process was started by hand, without a pipe."""

    def __init__(self) -> None:
        self._pipe = (
            os.fdopen(int(os.environ[EVENTS_FD]), "w", buffering=1) if EVENTS_FD in os.environ else None
        )

    def emit(self, kind: EventKind, **content: Any) -> None:
        """`content` are the other fields of Event."""
        event = Event(kind=kind, **content)
        if self._pipe is not None:
            self._pipe.write(event.model_dump_json(exclude_defaults=True) + "\n")

    def close(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
