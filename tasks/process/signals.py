"""Ctrl-C and SIGTERM reach the stages under way: the first asks them to stop at a step boundary, then it kills.

Handlers belong to the main thread, while stages may be supervised from others; so the children are kept here.
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
        pass


@contextmanager
def forwarded(on_stop: Callable[[int], None] = lambda requests: None) -> Iterator[None]:
    """Within, SIGINT and SIGTERM go to the stages under way; with none under way, to whom they went before.

    `on_stop` hears how often a stop was asked for. Outside the main thread nothing is installed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    global _stop_requests, _depth
    before = {number: signal.getsignal(number) for number in FORWARDED}

    def handle(number: int, frame: FrameType | None) -> None:
        previous = before[signal.Signals(number)]
        if _children:
            ask_to_stop()
            on_stop(_stop_requests)
        elif callable(previous):
            previous(number, frame)
        elif previous == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    handle.__qualname__ = _OURS
    if all(getattr(handler, "__qualname__", "") == _OURS for handler in before.values()):
        yield  # an outer use is in place and knows whom to tell
        return
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
