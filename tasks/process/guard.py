"""Kills a stage's process group when its owner is gone.

    python guard.py PGID < lifeline

The owner holds the other end of the lifeline and says "released" when it has cleaned up itself; an end of
file without that word means that the owner died, by SIGKILL perhaps. Then whatever is left of the group must
not live on: the stage's process asks the kernel to die with its owner, its own children (verifier workers)
do not. Uses the standard library only, since it is started without site-packages.
"""

import contextlib
import os
import signal
import sys

RELEASED = b"released"


def main(group: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    said = b""
    while piece := os.read(0, 64):
        said += piece
    if said != RELEASED:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]))
