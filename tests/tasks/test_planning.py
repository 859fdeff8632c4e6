"""A plan says for each node what would happen and why, and the run then does that."""

from dataclasses import replace

import pytest
from toy_stages.counter import params as counter
from toy_stages.counter.params import CounterParams
from toy_stages.flow import two_counters

from stages.declaration import ForeignCode
from stages.errors import UsageError
from tasks.lineage.ancestry import walk
from tasks.lineage.verify import rehash
from tasks.stage import stage
from tasks.store.keys import UnstableValue
from tasks.store.objects import Store


@pytest.fixture(scope="module")
def done(elsewhere):
    """Two counters, made; tests here only plan, or rerun in ways that change nothing."""
    elsewhere.go()
    return elsewhere


def test_at_first_everything_runs_in_order(toys):
    one, two = toys.plan().values()
    assert (one.action, one.reason, one.seconds) == (
        "run",
        "never run before",
        CounterParams.expected_seconds,
    )
    assert two.seconds == pytest.approx(CounterParams.expected_seconds * 5 / 6)  # it has five steps of six
    assert (two.action, two.key, two.reason) == ("run", None, "never run before; after one")
    assert two.inputs == {"before": "one.sum"}
    assert two.outputs == ("sum", "trace")
    assert len(one.key) == 64
    assert not toys.home.root.exists()


def test_a_made_flow_is_reused_and_takes_no_time(done):
    one, two = done.plan().values()
    assert [one.action, two.action] == ["reuse", "reuse"]
    assert (one.seconds, two.seconds) == (0.0, 0.0)
    run = done.go()
    assert done.states(run) == {"one": "reused", "two": "reused"}
    assert [record.key for record in run.nodes()] == [one.key, two.key]
    assert done.heard.events == []


def test_a_changed_parameter_is_named(done):
    plan = done.plan(lambda: two_counters(CounterParams(steps=9, seed=4)))
    assert plan["one"].action == "run"
    assert plan["one"].reason == "seed 0 -> 4; steps 6 -> 9"
    assert plan["two"].reason == "after one"
    took = Store(done.home).latest("toy_stages.counter", "one").seconds
    assert plan["one"].seconds == pytest.approx(took * 9 / 6)


def test_a_changed_version_is_named(done, monkeypatch):
    monkeypatch.setattr(counter, "STAGE", replace(counter.STAGE, version=2))
    assert done.plan()["one"].reason == "version 1 -> 2"


def test_a_changed_input_is_named(done):
    def flow():
        one = stage("one", CounterParams())
        stage("two", CounterParams(steps=5), before=one["trace"])

    def alone():
        stage("one", CounterParams())
        stage("two", CounterParams(steps=5))

    assert done.plan(flow)["two"].reason == "input before changed"
    assert done.plan(alone)["two"].reason == "input before dropped"


def test_a_changed_source_under_the_same_version_is_a_warning(done, monkeypatch):
    from tasks import provenance

    before = provenance.sources("toy_stages.counter")
    assert {
        "toy_stages/counter",
        "stages",
        "stages/domains",
        "stages/engines",
        "data_contracts",
    } <= before.keys()
    now = {**before, "stages/engines": "sha256:other"}
    monkeypatch.setattr(provenance, "sources", lambda stage, modules=(): now)
    line = done.plan()["one"]
    assert line.action == "reuse"
    assert line.warning.startswith("stages/engines changed") and "--force" in line.warning


def test_a_new_version_of_foreign_code_is_another_key_and_named(toys, monkeypatch):
    def uses(version: str):
        code = ForeignCode({"domain": version})
        monkeypatch.setattr(counter, "STAGE", replace(counter.STAGE, foreign_code=lambda _: code))

    uses("toy/1")
    run = toys.go()
    assert toys.plan()["one"].action == "reuse"
    assert not isinstance(rehash(Store(toys.home), walk(Store(toys.home), made(toys, run, "two"))), list)
    uses("toy/2")
    assert toys.plan()["one"].reason == "domain version toy/1 -> toy/2"


def made(toys, run, node):
    record = run.node(node)
    return next(iter(Store(toys.home).lookup(record.stage, record.key).refs().values()))


def test_a_forced_node_with_equal_bytes_invalidates_nothing_after_it(done):
    before = done.digests(done.go())
    plan = done.plan(forced=frozenset({"one"}))
    assert (plan["one"].action, plan["one"].reason) == ("run", "forced")
    assert (plan["two"].action, plan["two"].reason) == ("run", "after one")
    run = done.go(forced=["one"])
    assert done.states(run) == {"one": "completed", "two": "reused"}
    assert done.digests(run) == before
    assert list(Store(done.home).root.glob("objects/*/*.old-*"))
    assert done.plan()["one"].action == "reuse"


def test_a_forced_run_that_goes_on_forces_nothing_twice(done):
    run = done.go(forced=["one"])
    done.go(run=run)
    assert done.states(run) == {"one": "reused", "two": "reused"}
    assert done.plan(run_id=run.id, forced=frozenset({"one"}))["one"].action == "reuse"


def test_from_a_node_it_and_what_depends_on_it_are_made_again(done):
    run = done.go(from_node="one")
    assert done.states(run) == {"one": "completed", "two": "completed"}
    run = done.go(from_node="two")
    assert done.states(run) == {"one": "reused", "two": "completed"}


def test_a_node_before_from_can_be_forced_as_well(done):
    run = done.go(forced=["one"], from_node="two")
    assert done.states(run) == {"one": "completed", "two": "completed"}


def test_from_a_node_whose_past_is_missing_is_refused_before_work(done):
    def changed():
        two_counters(CounterParams(steps=9))

    for attempt in (lambda: done.plan(changed, from_node="two"), lambda: done.go(changed, from_node="two")):
        with pytest.raises(UsageError, match=r"cannot start from two: one.*steps 6 -> 9.*without --from"):
            attempt()


@pytest.mark.parametrize("selection", [{"forced": frozenset({"three"})}, {"from_node": "three"}])
def test_a_node_that_the_flow_lacks_is_refused(done, selection):
    with pytest.raises(UsageError, match=r"(no node|cannot start from) '?three.*(one, two|without --from)"):
        done.plan(**selection)


def test_inputs_are_checked_against_the_declaration(toys):
    def unknown():
        one = stage("one", CounterParams())
        stage("two", CounterParams(), model=one["sum"])

    def twice():
        stage("one", CounterParams())
        stage("one", CounterParams())

    with pytest.raises(
        UsageError, match=r"two: stage toy_stages\.counter takes no input 'model'; it takes before"
    ):
        toys.plan(unknown)
    with pytest.raises(UsageError, match="node name 'one' twice"):
        toys.plan(twice)


def test_a_required_input_and_its_kind_are_checked(toys, monkeypatch):
    from stages.declaration import CHECKPOINT

    monkeypatch.setattr(counter, "STAGE", replace(counter.STAGE, optional=frozenset()))
    with pytest.raises(UsageError, match=r"one: stage toy_stages\.counter needs the input 'before'"):
        toys.plan()
    monkeypatch.setattr(
        counter,
        "STAGE",
        replace(counter.STAGE, inputs={"before": CHECKPOINT}, optional=frozenset({"before"})),
    )
    with pytest.raises(UsageError, match="two: input before must be a checkpoint, not a files"):
        toys.plan()


def test_parameters_that_have_no_key_are_refused(toys):
    bad = CounterParams().model_copy(update={"modulus": float("nan")})
    with pytest.raises(UnstableValue, match=r"params\.modulus is nan"):
        toys.plan(lambda: two_counters(bad))
