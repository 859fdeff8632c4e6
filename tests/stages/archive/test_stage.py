"""The archive against its own rollouts, from which everything in it can be computed again."""

import json
import os

import pytest

from data_contracts.checkpoint import tensor_digest
from data_contracts.dataset import read
from data_contracts.registry import contract
from stages.archive.stage import run
from stages.errors import GuardError


def tables(attempt):
    return read(attempt.out("archive"), "elite_archive/1"), read(attempt.out("rollouts"), "rollouts/1")


def curve(attempt):
    return json.loads((attempt.out("curve") / "curve.json").read_text())


def same_outputs(one, other):
    return all(
        (one.out(output) / name).read_bytes() == (other.out(output) / name).read_bytes()
        for output in ("archive", "rollouts", "curve")
        for name in os.listdir(other.out(output))
    )


def rounds_of(rollouts):
    """Prompt -> its groups in the order of rounds."""
    found: dict[str, dict[int, list[dict]]] = {}
    for row in rollouts.to_pylist():
        found.setdefault(row["prompt_id"], {}).setdefault(row["step"], []).append(row)
    for prompt, groups in found.items():
        assert sorted(groups) == list(range(len(groups))), prompt
    return {prompt: [groups[turn] for turn in sorted(groups)] for prompt, groups in found.items()}


def test_outputs_meet_their_contracts(archived):
    archive, rollouts = tables(archived)
    assert contract("elite_archive/1").check(archive) == []
    assert contract("rollouts/1").check(rollouts) == []
    assert archive.num_rows > 10


def test_one_elite_per_prompt_and_strategy_the_best_one_with_its_count(archived, base):
    archive, rollouts = tables(archived)
    cells: dict[tuple[str, str], list[dict]] = {}
    for row in rollouts.to_pylist():
        if row["reward"] == 1:
            cells.setdefault((row["prompt_id"], row["signature"]), []).append(row)
    elites = {(row["prompt_id"], row["signature"]): row for row in archive.to_pylist()}
    assert len(elites) == archive.num_rows and set(elites) == set(cells)
    for cell, samples in cells.items():
        elite = elites[cell]
        best = max(samples, key=lambda row: (sum(row["logprobs"]), -len(row["completion_ids"])))
        assert elite["count"] == len(samples)
        assert elite["completion_ids"] == best["completion_ids"] and elite["text"] == best["text"]
        assert elite["base_logprob"] == pytest.approx(sum(best["logprobs"]), abs=1e-5)
    assert {row["base_digest"] for row in elites.values()} == {tensor_digest(base)}


def test_a_prompt_is_sampled_until_it_was_quiet_for_patience_rounds(archived):
    stopped_early = 0
    for prompt, rounds in rounds_of(tables(archived)[1]).items():
        seen, quiet = set(), 0
        for turn, group in enumerate(rounds):
            assert quiet < 2 and turn < 4, prompt
            found = {row["signature"] for row in group if row["reward"] == 1}
            quiet = 0 if found - seen else quiet + 1
            seen |= found
        assert quiet == 2 or len(rounds) == 4, prompt
        stopped_early += len(rounds) < 4
    assert stopped_early > 0


def test_the_curve_rises_to_what_was_found(archived):
    archive, rollouts = tables(archived)
    points = curve(archived)["points"]
    for name, total in (("samples", rollouts.num_rows), ("cells", archive.num_rows)):
        values = [point[name] for point in points]
        assert values == sorted(values) and values[-1] == total
    unscorable = sum(row["reward"] is None for row in rollouts.to_pylist())
    assert curve(archived)["unscorable"] == unscorable > 0
    assert [point["round"] for point in points] == [1, 2, 3, 4]


def test_stopped_or_killed_in_any_part_equals_undisturbed(world, base, archived, tmp_path):
    """Also determinism: these are runs of their own."""
    stopped = world.attempt(tmp_path / "stopped", archived.params, base=base)
    assert stopped.stopped_at_each_step(run) == 2
    killed = world.attempt(tmp_path / "killed", archived.params, base=base)
    killed.killed(run)
    run(killed.context())
    for attempt in (stopped, killed):
        assert same_outputs(attempt, archived)
        assert attempt.metrics() == archived.metrics()


@pytest.mark.oracle("1.6")
def test_the_seed_chooses_the_samples_and_the_machine_does_not(world, base, archived, tmp_path):
    machine = {"sample_batch_rows": 8, "verifier_workers": 2}
    same = world.attempt(tmp_path / "same", archived.params, machine, base=base)
    run(same.context())
    texts = tables(archived)[1].column("text")
    assert tables(same)[1].column("text") == texts
    other = world.attempt(tmp_path / "other", world.archive_params(seed=1, max_rounds=1), base=base)
    run(other.context())
    assert tables(other)[1].column("text")[:32] != texts[:32]


def test_some_prompts_are_taken_of_all_capabilities(world, base, tmp_path):
    params = world.archive_params(prompts=4, max_rounds=1, samples_per_round=16)
    attempt = world.attempt(tmp_path, params, base=base)
    run(attempt.context())
    rows = tables(attempt)[1].to_pylist()
    assert len({row["prompt_id"] for row in rows}) == 4
    assert {row["capability"] for row in rows} == {"clear", "ambiguous"}


@pytest.mark.oracle("1.6")
def test_a_model_with_rl_behind_it_is_refused(world, base, tmp_path):
    late = world.with_record(base, "late", rl_steps=12)
    attempt = world.attempt(tmp_path, world.archive_params(), base=late)
    with pytest.raises(GuardError, match="12 RL steps"):
        run(attempt.context())
    assert not attempt.out("archive").exists() and attempt.context().latest_step() is None


def test_a_base_that_solves_nothing_is_one_sentence(world, base, tmp_path):
    attempt = world.attempt(
        tmp_path,
        world.archive_params(max_rounds=1),
        base=base,
        prompts=world.rules("no", "nothing", "nothing"),
    )
    with pytest.raises(GuardError, match="solves none of the archive's prompts"):
        run(attempt.context())


def test_a_prompt_that_nothing_solves_is_sampled_and_has_no_elite(world, base, tmp_path):
    prompts = world.rules("some", "nothing", "everything", "no verdict")
    attempt = world.attempt(tmp_path, world.archive_params(), base=base, prompts=prompts)
    run(attempt.context())
    archive, rollouts = tables(attempt)
    assert {row.split("/")[-1] for row in archive.column("prompt_id").to_pylist()} == {"everything"}
    rounds = {prompt.split("/")[-1]: len(groups) for prompt, groups in rounds_of(rollouts).items()}
    assert rounds["nothing"] == rounds["no verdict"] == 2  # quiet from the start
    ended = [row for row in rollouts.to_pylist() if row["stop_reason"] == "eos"]  # a cut one is wrong
    assert curve(attempt)["unscorable"] == sum(
        "?" in row["text"] or row["prompt_id"].endswith("no verdict") for row in ended
    )
