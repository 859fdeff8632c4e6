"""A work folder goes on only under the runtime, and only for the request, that it was begun for."""

import os

import pytest

from stages.spec import Runtime
from tasks.store.work import Work, runtime_differences

RUNTIME = Runtime(threads=1)


@pytest.fixture
def folder(home):
    return home.store / "work" / "toy" / "key"


def begin(folder, **changes):
    work = Work(folder)
    facts = {"key": "key", "run_id": "run", "node": "one", "runtime": RUNTIME, **changes}
    return work, work.begin(**facts)


def save(work, step):
    (work.folder / "steps" / f"step-{step:09d}").mkdir(parents=True)


def test_attempts_are_counted_and_keep_steps_but_not_outputs(folder):
    work, first = begin(folder)
    save(work, 3)
    (work.out / "half").mkdir()
    work, second = begin(folder)
    assert (first.n, second.n) == (1, 2)
    assert second.first_started == first.started
    assert work.saved_step() == 3
    assert list(work.out.iterdir()) == []
    assert work.notices == []


MAY_CHANGE_RESULTS = ["threads", "python", "micro_batch_rows", "sample_batch_rows", "verifier_deadline_s"]


@pytest.mark.parametrize("field", MAY_CHANGE_RESULTS)
def test_a_field_that_may_change_results_starts_over(folder, field):
    work, _ = begin(folder)
    save(work, 3)
    other = "/usr/bin/python3" if field == "python" else getattr(RUNTIME, field) + 1
    work, again = begin(folder, runtime=RUNTIME.model_copy(update={field: other}))
    assert again.n == 1
    assert work.saved_step() is None
    (notice,) = work.notices
    assert f"({field} {getattr(RUNTIME, field)} -> {other})" in notice


def test_every_field_is_judged():
    assert {*MAY_CHANGE_RESULTS, "save_every_s", "verifier_workers"} == set(Runtime.model_fields)


def test_a_field_that_changes_no_result_does_not():
    other = Runtime(threads=1, save_every_s=1, verifier_workers=4)
    assert runtime_differences(RUNTIME, other) == ""
    assert runtime_differences(RUNTIME, Runtime(threads=3, micro_batch_rows=8)) == (
        "threads 1 -> 3, micro_batch_rows 32 -> 8"
    )


def test_a_forced_rerun_starts_over_but_goes_on_within_its_run(folder):
    work, _ = begin(folder)
    save(work, 3)
    work, forced = begin(folder, run_id="later", forced=True)
    assert forced.n == 1 and work.saved_step() is None
    assert work.notices == ["one starts over: it was forced"]
    save(work, 2)
    work, resumed = begin(folder, run_id="later", forced=True)
    assert resumed.n == 2 and work.saved_step() == 2
    work, other = begin(folder, run_id="third", forced=True)
    assert other.n == 1 and work.saved_step() is None


def test_resuming_under_changed_sources_is_told(folder):
    work, _ = begin(folder, source_digest="a", environment_digest="x")
    work, _ = begin(folder, source_digest="b", environment_digest="y")
    assert work.notices == []  # no step was saved, so nothing of the old sources goes on
    save(work, 1)
    work, _ = begin(folder, source_digest="c", environment_digest="y")
    (notice,) = work.notices
    assert "the sources changed since its attempt 2" in notice
    assert "installed packages" not in notice


@pytest.mark.parametrize("content", ["", "{", '{"n": 1}'])
def test_a_folder_without_a_readable_attempt_is_not_trusted(folder, content):
    work, _ = begin(folder)
    save(work, 3)
    (folder / "attempt.json").write_text(content)
    work, attempt = begin(folder)
    assert attempt.n == 1
    assert work.saved_step() is None


def test_the_time_of_dead_attempts_is_counted(folder):
    work, first = begin(folder)
    work.log.write_text("worked\n")

    later = first.started.timestamp() + 12
    os.utime(work.log, (later, later))
    _, second = begin(folder)
    assert second.seconds_before == pytest.approx(12, abs=0.01)
