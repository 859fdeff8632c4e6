"""A process that judges answers for `VerifierPool`: `python -m stages.domains.worker FOLDER OWNER_PID`.

Frames of JSON on stdin and stdout, each with its length in front; one answer frame per item, so that the
owner knows which item it waits for. It dies with its owner. It limits its own memory and file sizes.
"""

import contextlib
import json
import os
import resource
import signal
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO

from stages.domains.protocol import Domain, Prompt, Split, Unscorable, Verdict
from stages.domains.registry import open_domain
from stages.owner import die_with

LENGTH = struct.Struct(">I")
MEMORY_BYTES = 4 << 30  # address space: libraries alone map most of a gigabyte
WRITTEN_BYTES = 1 << 16  # what it says on stderr
OPEN_FILES = 64


def read_frame(stream: BinaryIO) -> Any:
    """The next message, or None at the end of the stream."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    body = stream.read(LENGTH.unpack(head)[0])
    return json.loads(body)


def frame(message: Any) -> bytes:
    body = json.dumps(message).encode()
    return LENGTH.pack(len(body)) + body


def limit_resources() -> None:
    for kind, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, WRITTEN_BYTES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
    ):
        hard = resource.getrlimit(kind)[1]
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (allowed, allowed))


def judge(domain: Domain, prompt: Prompt, text: str) -> dict[str, Any]:
    """Verdict and signature as JSON. Out of memory ends the process: nothing after it can be trusted."""
    try:
        verdict = domain.verify([prompt], [text])[0]
        signature = domain.signature(prompt, text) if verdict.reward else None
    except MemoryError:
        os._exit(2)
    except Exception as error:
        with contextlib.suppress(OSError):  # its file is full
            print(f"verifier error on {prompt.id}: {error!r}", file=sys.stderr, flush=True)
        verdict, signature = Verdict(unscorable=Unscorable.VERIFIER_ERROR), None
    return {
        "reward": verdict.reward,
        "unscorable": verdict.unscorable,
        "reading": verdict.reading,
        "signature": signature,
    }


def main(folder: str, owner: str) -> None:
    die_with(int(owner))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner decides when Ctrl-C means the end
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a domain prints must not mix with frames
    domain = open_domain(Path(folder))
    limit_resources()
    prompts: dict[str, Prompt] = {}
    answers.write(frame("ready"))
    answers.flush()
    while (work := read_frame(sys.stdin.buffer)) is not None:
        for raw in work["prompts"]:
            prompts[raw["id"]] = Prompt(**{**raw, "split": Split(raw["split"])})
        for prompt_id, text in work["items"]:
            answers.write(frame(judge(domain, prompts[prompt_id], text)))
            answers.flush()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        main(*sys.argv[1:])
