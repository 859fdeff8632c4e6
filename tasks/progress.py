"""Who hears what happens in a run: the command line shows it, a worker logs it."""

import logging
from typing import Protocol

from stages.spec import Event, EventKind
from tasks.runs import NodeRecord


class Reporter(Protocol):
    """Called in the thread that runs the node; `on_stop` from a signal handler."""

    def on_node(self, record: NodeRecord) -> None:
        """The node changed its state."""

    def on_event(self, node: str, event: Event) -> None:
        """The node's process said something."""

    def on_stop(self, requests: int) -> None:
        """The user asked to stop, for the how-manieth time: the first is graceful, the second kills."""


class LogReporter:
    """To the logger "posttrain": states and notices; a line per percent of progress would drown them."""

    def __init__(self) -> None:
        self.log = logging.getLogger("posttrain")

    def on_node(self, record: NodeRecord) -> None:
        key = f" {record.key[:12]}" if record.key else ""
        self.log.info("%s: %s%s %s", record.node, record.state, key, record.message)

    def on_event(self, node: str, event: Event) -> None:
        if event.kind is EventKind.NOTICE:
            self.log.warning("%s: %s", node, event.text)
        elif event.kind is EventKind.RESUMED:
            self.log.info("%s: goes on from step %s of %s", node, event.step, event.total)

    def on_stop(self, requests: int) -> None:
        self.log.warning("stopping at the next step boundary" if requests == 1 else "killing")
