"""Verifiers that hang, die and misbehave cost their own sample and nothing else."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stages.domains.pool import Judgement, PoolError, VerifierPool
from stages.domains.protocol import Prompt, Split, Unscorable
from stages.domains.registry import write_name
from stages.domains.sql.domain import SqlDomain

HERE = Path(__file__).parent
ASKED = Prompt("p", "awkward", "c", "t", {}, Split.TRAIN, "open")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


def awkward(folder: Path, workers: int = 2, deadline_s: float = 0.3) -> VerifierPool:
    folder.mkdir(exist_ok=True)
    write_name(folder, "awkward_domain:AwkwardDomain")
    return VerifierPool(folder, workers, deadline_s)


def judge(pool: VerifierPool, texts: list[str]) -> list[Judgement]:
    return pool.judge([ASKED] * len(texts), texts)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_the_pool_gives_the_verdicts_of_the_domain_in_order(sql_folder: Path, domain: SqlDomain) -> None:
    prompts, texts = [], []
    for prompt in domain.prompts(Split.VALIDATION)[::10]:
        for queries in domain.strategies(prompt).values():
            texts += [*queries, "select 1"]
            prompts += [prompt] * (len(queries) + 1)
    with VerifierPool(sql_folder, 2, 30.0) as pool:
        judged = pool.judge(prompts * 3, texts * 3)
        assert pool.counts == {
            "asked": 3 * len(texts),
            "executed": len(set(zip(map(id, prompts), texts, strict=True))),
        }
    assert [j.verdict for j in judged] == domain.verify(prompts, texts) * 3
    assert [j.signature for j in judged] == [
        domain.signature(p, t) for p, t in zip(prompts, texts, strict=True)
    ] * 3


def test_only_the_offending_item_is_lost(tmp_path: Path) -> None:
    texts = [f"fine {n}" for n in range(300)]
    for place, what in ((0, "hang"), (20, "die"), (21, "spin"), (40, "exit"), (299, "_exit"), (150, "eat")):
        texts[place] = what
    texts[77] = "raise"
    with awkward(tmp_path) as pool:
        judged = judge(pool, texts)
        assert pool.size == 2
        counts = dict(pool.counts)
    lost = {texts[n]: j.verdict.unscorable for n, j in enumerate(judged) if j.verdict.unscorable}
    assert lost == {
        "hang": Unscorable.WALL_CLOCK,
        "spin": Unscorable.WALL_CLOCK,
        "die": Unscorable.WORKER_DIED,
        "exit": Unscorable.WORKER_DIED,
        "_exit": Unscorable.WORKER_DIED,
        "eat": Unscorable.WORKER_DIED,
        "raise": Unscorable.VERIFIER_ERROR,
    }
    assert sum(j.verdict.reward == 1.0 for j in judged) == 293
    assert counts["unscorable.wall_clock"] == counts["lost.wall_clock"] == 2
    assert counts["unscorable.worker_died"] == counts["lost.worker_died"] == 4


def test_a_hundred_timeouts_leave_the_pool_as_large_as_it_was(tmp_path: Path) -> None:
    with awkward(tmp_path, deadline_s=0.02) as pool:
        first = pool.pids
        judged = judge(pool, [f"hang {n}" for n in range(100)])
        assert {j.verdict.unscorable for j in judged} == {Unscorable.WALL_CLOCK}
        assert pool.size == 2
        assert pool.counts["lost.wall_clock"] == 100
        assert not any(alive(pid) for pid in first)
        assert judge(pool, ["fine"])[0].verdict.reward == 1.0


def test_a_reason_of_the_moment_is_not_remembered_and_a_verdict_is(tmp_path: Path) -> None:
    with awkward(tmp_path, workers=1, deadline_s=0.1) as pool:
        judge(pool, ["hang", "fine", "fine"])
        judge(pool, ["hang", "fine", "raise"])
        judge(pool, ["raise"])
        assert pool.counts["lost.wall_clock"] == 2
        assert pool.counts["executed"] == 4


def test_it_works_from_any_thread_and_outlives_the_thread_that_opened_it(tmp_path: Path) -> None:
    results: list[Judgement] = []
    with contextlib.ExitStack() as stack:
        pool = awkward(tmp_path)
        opener = threading.Thread(target=lambda: stack.enter_context(pool))
        opener.start()
        opener.join()
        asker = threading.Thread(target=lambda: results.extend(judge(pool, ["fine", "hang"])))
        asker.start()
        asker.join()
        assert pool.size == 2
        assert pool.counts["lost.worker_died"] == 0
    assert results[0].verdict.reward == 1.0
    assert results[1].verdict.unscorable is Unscorable.WALL_CLOCK


def test_workers_die_with_an_owner_that_is_killed(tmp_path: Path) -> None:
    write_name(tmp_path, "awkward_domain:AwkwardDomain")
    script = (
        "import sys, time; from pathlib import Path\n"
        "from stages.domains.pool import VerifierPool\n"
        "from stages.domains.protocol import Prompt, Split\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "pool = VerifierPool(folder, 3, 600.0).__enter__()\n"
        "print(*pool.pids, flush=True)\n"
        "pool.judge([Prompt('p', 'd', 'c', 't', {}, Split.TRAIN, 'open')] * 3, ['spin', 'hang', 'fine'])\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) as owner:
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        time.sleep(0.5)
        assert all(map(alive, pids))
        owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 5
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(alive, pids))


def test_noise_files_and_secrets_stay_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    target = tmp_path / "large"
    with awkward(tmp_path, workers=1, deadline_s=5) as pool:
        judged = judge(pool, ["environment", "print", f"write {target}", "fine"])
    assert judged[0].verdict.reward == 0.0
    assert judged[1].verdict.reward == judged[3].verdict.reward == 1.0
    assert judged[2].verdict.unscorable is Unscorable.VERIFIER_ERROR
    assert target.stat().st_size <= 1 << 16


def test_a_domain_that_cannot_start_is_one_clear_error(tmp_path: Path) -> None:
    with (
        awkward(tmp_path / "broken", workers=1) as pool,
        pytest.raises(PoolError, match="this domain cannot be opened"),
    ):
        judge(pool, ["fine"])


def test_a_closed_pool_says_so(tmp_path: Path) -> None:
    pool = awkward(tmp_path)
    with pytest.raises(PoolError, match="closed"):
        judge(pool, ["fine"])


def test_sixteen_thousand_mostly_repeated_answers_take_seconds(sql_folder: Path, domain: SqlDomain) -> None:
    prompts, texts = [], []
    for prompt in domain.prompts(Split.TRAIN)[::4]:
        golds = [q for queries in domain.strategies(prompt).values() for q in queries]
        prompts += [prompt] * 160
        texts += [f"{golds[n % len(golds)]}{' ' * (n % 3)}" for n in range(160)]
    with VerifierPool(sql_folder, 2, 30.0) as pool:
        started = time.monotonic()
        pool.judge(prompts, texts)
        assert len(texts) > 16_000
        assert time.monotonic() - started < 20  # 2 s on an idle machine
