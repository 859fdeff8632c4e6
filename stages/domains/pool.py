"""Runs a domain's verifier in worker processes, so that no answer can hang, crash or starve a stage.

A worker that exceeds the wall-clock backstop on one item is killed and replaced, one that dies is replaced.
In both cases that item alone is unscorable and counted; the rest of its chunk goes to another worker.
Works from any thread: signals and alarms are not used.
"""

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from stages.context import StageContext
from stages.domains.protocol import Prompt, Unscorable, Verdict
from stages.domains.worker import LENGTH, frame
from stages.errors import PosttrainError

CHUNK = 64  # items in a worker's queue: enough to hide the pipe, few enough to share out evenly
STARTUP_S = 120.0
MOST_REMEMBERED = 500_000
TRANSIENT = frozenset({Unscorable.WALL_CLOCK, Unscorable.WORKER_DIED})

Key = tuple[str, str]  # prompt id, text


class PoolError(PosttrainError):
    """Workers cannot be started at all."""


@dataclass(frozen=True)
class Judgement:
    """`signature` is the strategy of a correct answer, else None."""

    verdict: Verdict
    signature: str | None


@dataclass(eq=False)
class _Worker:
    process: "subprocess.Popen[bytes]"
    stderr: IO[bytes]
    deadline: float
    ready: bool = False
    queue: deque[Key] = field(default_factory=deque)
    known: set[str] = field(default_factory=set)
    received: bytearray = field(default_factory=bytearray)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # a chunk that the dead worker had not taken
                stream.close()

    def said(self) -> str:
        self.stderr.seek(0)
        return self.stderr.read().decode(errors="replace").strip()[-600:]


class VerifierPool:
    """`with VerifierPool(folder, workers, deadline_s) as pool: pool.judge(prompts, texts)`.

    `folder` is the domain's; `deadline_s` is the wall-clock backstop for one item. `counts` says how often a
    worker was lost and how many items were asked, executed and unscorable.
    """

    def __init__(self, folder: Path, workers: int, deadline_s: float) -> None:
        if workers < 1:
            raise ValueError("a pool needs at least one worker")
        owner = str(os.getpid())
        self._command = [sys.executable, "-m", "stages.domains.worker", str(folder), owner]
        self._size = workers
        self._deadline_s = deadline_s
        self._workers: list[_Worker] = []
        self._memory: dict[Key, Judgement] = {}
        self._lock = threading.Lock()
        # a worker dies with the *thread* that started it: one that lives as long as the pool starts them all
        self._starter = ThreadPoolExecutor(1, "verifier-starter")
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._workers = [self._start() for _ in range(self._size)]
        return self

    def __exit__(
        self, error: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            for worker in self._workers:
                self._discard(worker)
            self._workers = []
        self._starter.shutdown()

    @property
    def size(self) -> int:
        """Live worker processes."""
        return sum(worker.process.poll() is None for worker in self._workers)

    @property
    def pids(self) -> list[int]:
        return [worker.process.pid for worker in self._workers]

    def judge(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Judgement]:
        """One judgement per (prompt, text), in order; equal pairs are executed once in the pool's life.

        Unscorable for a reason of the moment (wall clock, a dead worker) is not remembered. Raises PoolError
        if workers cannot be started.
        """
        keys = [(prompt.id, text) for prompt, text in zip(prompts, texts, strict=True)]
        by_id = {prompt.id: prompt for prompt in prompts}
        with self._lock:
            if not self._workers:
                raise PoolError("the verifier pool is closed: use it as a context manager")
            if len(self._memory) > MOST_REMEMBERED:
                self._memory.clear()
            fresh = [key for key in dict.fromkeys(keys) if key not in self._memory]
            judged = self._run(by_id, fresh)
            self.counts["asked"] += len(keys)
            self.counts["executed"] += len(fresh)
            for key, judgement in judged.items():
                reason = judgement.verdict.unscorable
                if reason is not None:
                    self.counts[f"unscorable.{reason}"] += 1
                if reason not in TRANSIENT:
                    self._memory[key] = judgement
            return [judged[key] if key in judged else self._memory[key] for key in keys]

    def _run(self, prompts: dict[str, Prompt], keys: Sequence[Key]) -> dict[Key, Judgement]:
        waiting = deque(keys)
        done: dict[Key, Judgement] = {}
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                selector.register(_out(worker), selectors.EVENT_READ, worker)
            while len(done) < len(keys):
                for worker in self._workers:
                    if worker.ready and not worker.queue and waiting:
                        self._assign(worker, prompts, waiting, len(keys))
                busy = [worker for worker in self._workers if worker.queue or not worker.ready]
                timeout = max(0.0, min(worker.deadline for worker in busy) - time.monotonic())
                for event, _ in selector.select(timeout):
                    worker = event.data
                    if not self._receive(worker, done):
                        self._replace(worker, Unscorable.WORKER_DIED, selector, waiting, done)
                now = time.monotonic()
                for worker in [w for w in self._workers if (w.queue or not w.ready) and now > w.deadline]:
                    self._replace(worker, Unscorable.WALL_CLOCK, selector, waiting, done)
        return done

    def _assign(self, worker: _Worker, prompts: dict[str, Prompt], waiting: deque[Key], total: int) -> None:
        count = max(1, min(CHUNK, len(waiting), total // (4 * self._size)))
        chunk = [waiting.popleft() for _ in range(count)]
        unknown = {key[0] for key in chunk} - worker.known
        worker.known |= unknown
        worker.queue.extend(chunk)
        worker.deadline = time.monotonic() + self._deadline_s
        message = {"prompts": [asdict(prompts[name]) for name in sorted(unknown)], "items": chunk}
        assert worker.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died; its end of the other pipe says so
            worker.process.stdin.write(frame(message))
            worker.process.stdin.flush()

    def _receive(self, worker: _Worker, done: dict[Key, Judgement]) -> bool:
        """Take in what a worker wrote; False if it has ended."""
        data = os.read(_out(worker).fileno(), 1 << 16)
        worker.received += data
        while len(worker.received) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(worker.received)[0]
            if len(worker.received) < end:
                break
            message = json.loads(bytes(worker.received[LENGTH.size : end]))
            del worker.received[:end]
            worker.deadline = time.monotonic() + self._deadline_s
            if message == "ready":
                worker.ready = True
            else:
                done[worker.queue.popleft()] = _judgement(message)
        return bool(data)

    def _replace(
        self,
        worker: _Worker,
        reason: Unscorable,
        selector: selectors.BaseSelector,
        waiting: deque[Key],
        done: dict[Key, Judgement],
    ) -> None:
        """A worker is lost: the item it was at is unscorable, the others wait again, a new worker starts."""
        selector.unregister(_out(worker))
        said = worker.said()
        if not worker.ready:
            self._discard(worker)
            self._workers.remove(worker)
            raise PoolError(f"a verifier worker did not start ({reason}): {said or 'it said nothing'}")
        self.counts[f"lost.{reason}"] += 1
        if worker.queue:
            done[worker.queue.popleft()] = Judgement(Verdict(unscorable=reason), None)
            waiting.extendleft(reversed(worker.queue))
        self._discard(worker)
        fresh = self._start()
        self._workers[self._workers.index(worker)] = fresh
        selector.register(_out(fresh), selectors.EVENT_READ, fresh)

    def _start(self) -> _Worker:
        return self._starter.submit(self._start_here).result()

    def _start_here(self) -> _Worker:
        stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=_environment(),
            start_new_session=True,  # a Ctrl-C at the terminal is for the owner
        )
        return _Worker(process, stderr, time.monotonic() + STARTUP_S)

    def _discard(self, worker: _Worker) -> None:
        worker.kill()
        worker.stderr.close()


def open_pool(ctx: StageContext[Any]) -> VerifierPool:
    """The verifiers of a stage's domain, as many and with as much time as its runtime says."""
    return VerifierPool(ctx.input("domain"), ctx.runtime.verifier_workers, ctx.runtime.verifier_deadline_s)


def _environment() -> dict[str, str]:
    """Enough to start this interpreter and import what the owner can; no credentials, no settings."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return kept | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path), "LANG": "C.UTF-8"}


def _out(worker: _Worker) -> IO[bytes]:
    assert worker.process.stdout is not None
    return worker.process.stdout


def _judgement(message: dict[str, Any]) -> Judgement:
    reason = message["unscorable"]
    verdict = Verdict(message["reward"], Unscorable(reason) if reason else None, message["reading"])
    return Judgement(verdict, message["signature"])
