"""Ctrl-C and SIGTERM: the first asks the stages under way to stop at a step boundary, the second kills them.

Handlers belong to the main thread, while stages may be supervised from others; so the children are kept here.
With no stage under way the request is kept, and `stop_asked` tells whoever would start the next one.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

FORWARDED = (signal.SIGINT, signal.SIGTERM)

_children: set[int] = set()  # process ids, each the leader of its own group
_stop_requests = 0
_depth = 0
_lock = threading.RLock()  # re-entrant: a handler may interrupt the thread that holds it


def stop_asked() -> bool:
    return _stop_requests > 0


def register(child: int) -> None:
    """A child that a stop shall reach; one that comes after a stop was asked for is told at once."""
    with _lock:
        _children.add(child)
        if stop_asked():
            _tell(child)


def unregister(child: int) -> None:
    with _lock:
        _children.discard(child)


def ask_to_stop() -> None:
    """What a signal does: the first time ask every stage under way to stop, from the second time on kill."""
    global _stop_requests
    with _lock:
        _stop_requests += 1
        for child in _children:
            _tell(child)


def _tell(child: int) -> None:
    try:
        if _stop_requests > 1:
            os.killpg(child, signal.SIGKILL)
        else:  # the leader only: its verifier workers must serve the step under way
            os.kill(child, signal.SIGTERM)
    except ProcessLookupError:
        pass  # it has just ended by itself


@contextmanager
def forwarded(on_stop: Callable[[int], None] = lambda requests: None) -> Iterator[None]:
    """Within, SIGINT and SIGTERM stop stages; a repeated one with no stage under way does what it did before.

    `on_stop` hears how often a stop was asked for. Requests are forgotten when the outermost use ends.
    Outside the main thread nothing is installed, and the uses in the main thread serve its stages as well.
    """
    global _stop_requests, _depth
    before = {number: signal.getsignal(number) for number in FORWARDED}
    in_place = all(getattr(handler, "__qualname__", "") == _OURS for handler in before.values())
    if in_place or threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        ask_to_stop()
        on_stop(_stop_requests)
        previous = before[signal.Signals(number)]
        if _children or _stop_requests == 1:
            return
        if callable(previous):
            previous(number, frame)
        elif previous == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    handle.__qualname__ = _OURS
    _depth += 1
    for number in FORWARDED:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _depth -= 1
        if _depth == 0:
            _stop_requests = 0


_OURS = f"{__name__}.handle"
