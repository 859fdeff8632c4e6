"""Gates on evaluations whose differences and noise are known."""

import math
import random
from statistics import stdev

import pytest

from data_contracts.evaluation.metric import Metric
from stages.promote.gates import judge
from stages.promote.measurements import Measurements, paired
from stages.promote.params import PromoteParams

N = 1000  # samples a prompt, so that sampling noise is small


def evaluation(correct, distinct=None, both=None, unscorable=0, n=N):
    """Rows of evaluation/1 at k = 1 and 8; `correct` is {(prompt, capability): share}."""
    rows = []
    for i, ((prompt, capability), share) in enumerate(correct.items()):
        for k in (1, 8):
            ambiguous = both is not None
            rows.append(
                {
                    "prompt_id": prompt,
                    "capability": capability,
                    "split": "test-compositions" if capability.startswith("new") else "test-values",
                    "ambiguity": "C" if ambiguous else "",
                    "k": k,
                    "n": n,
                    "correct": round(share * (n - unscorable)),
                    "unscorable": unscorable,
                    "strategies": 3,
                    "pass_at_k": 1 - (1 - share) ** k,
                    "distinct_at_k": share if k == 1 else (distinct or [2.0] * len(correct))[i],
                    "both_at_k": None if not ambiguous else (0.0 if k == 1 else both[i]),
                }
            )
    return Measurements(rows)


def prompts(*shares, capability="count"):
    return {(f"{capability}-{i}", capability): share for i, share in enumerate(shares)}


def gates(before, after, **params):
    return {gate.name: gate for gate in judge(before, after, PromoteParams(**params))}


BASE = prompts(0.4, 0.5, 0.6, 0.5)
BETTER = prompts(0.6, 0.7, 0.8, 0.72)


def test_a_better_and_still_wide_model_passes_every_gate():
    found = gates(evaluation(BASE, both=[0.5] * 4), evaluation(BETTER, both=[0.6] * 4))
    assert [gate.name for gate in found.values() if not gate.holds] == []
    assert set(found) == {
        "same prompts", "verdicts", "gain", "readings", "accuracy test-values", "reach test-values",
        "width test-values", "capability count",
    }  # fmt: skip


def test_paired_difference_is_that_of_the_prompts():
    before, after = evaluation(BASE), evaluation(BETTER, distinct=[1.0, 2.5, 2.0, 2.0])
    change = paired(before, after, Metric.DISTINCT, 8)
    assert change.mean == pytest.approx(-0.125)
    assert change.standard_error == pytest.approx(stdev([-1.0, 0.5, 0.0, 0.0]) / 2)
    assert change.prompts == 4


def test_standard_error_is_never_below_that_of_sampling():
    """Two prompts that both fell by exactly .1, measured with 10 samples each, are not certain."""
    change = paired(evaluation(prompts(0.5, 0.5), n=10), evaluation(prompts(0.4, 0.4), n=10), Metric.PASS, 1)
    assert change.standard_error == pytest.approx(math.sqrt(2 * (0.25 + 0.24) / 10) / 2)
    one = paired(evaluation(prompts(0.5)), evaluation(prompts(0.4)), Metric.DISTINCT, 8)
    assert one.standard_error == math.inf


def test_a_capability_that_falls_beyond_tolerance_and_noise_blocks():
    base = evaluation(BASE | prompts(0.8, 0.82, 0.78, capability="new"))
    forgot = evaluation(BETTER | prompts(0.6, 0.63, 0.57, capability="new"))
    gate = gates(base, forgot)["capability new"]
    assert not gate.holds
    assert gate.observed == pytest.approx(-0.2)
    assert gate.limit == pytest.approx(-0.05)
    assert "-0.200 over 3 prompts" in gate.sentence
    assert gates(base, forgot)["capability count"].holds


@pytest.mark.parametrize(
    "after",
    [prompts(0.77, 0.79, 0.74, capability="new"), prompts(0.99, 0.85, 0.2, capability="new")],
    ids=["within tolerance", "within noise"],
)
def test_a_small_or_a_noisy_fall_does_not_block(after):
    base = evaluation(BASE | prompts(0.8, 0.82, 0.78, capability="new"))
    assert gates(base, evaluation(BETTER | after))["capability new"].holds


def test_noise_in_many_capabilities_blocks_none_of_them():
    """40 capabilities of two prompts whose changes are noise: at 2 errors each, one would fail by chance."""
    rng = random.Random(0)
    base = {(f"{c}-{i}", f"c{c}"): 0.5 for c in range(40) for i in range(2)}
    noisy = {prompt: min(0.98, max(0.02, 0.55 + rng.gauss(0, 0.15))) for prompt in base}
    found = gates(evaluation(base), evaluation(noisy))
    by_chance = [
        1 for c in range(40) if 0.5 - (noisy[f"{c}-0", f"c{c}"] + noisy[f"{c}-1", f"c{c}"]) / 2 > 0.05
    ]
    assert len(by_chance) > 2  # beyond the tolerance, all of them
    assert all(gate.holds for name, gate in found.items() if name.startswith("capability"))


def test_distinct_falling_while_accuracy_rises_blocks():
    base = evaluation(BASE, distinct=[4.0, 3.9, 4.1, 4.0])
    narrow = evaluation(BETTER, distinct=[1.0, 1.1, 0.9, 1.0])
    gate = gates(base, narrow)["width test-values"]
    assert not gate.holds
    assert gate.observed == pytest.approx(-3.0)
    assert gate.limit == pytest.approx(-0.4)
    # the same fall with falling accuracy is another gate's matter, and a fall of a twentieth is tolerated
    worse = gates(base, evaluation(prompts(0.3, 0.3, 0.3, 0.3), distinct=[1.0, 1.1, 0.9, 1.0]))
    assert worse["width test-values"].holds and not worse["gain"].holds
    assert gates(base, evaluation(BETTER, distinct=[3.8, 3.7, 3.9, 3.8]))["width test-values"].holds


def test_gain_must_exceed_the_minimum_and_noise():
    base = evaluation(BASE)
    assert not gates(base, evaluation(prompts(0.41, 0.51, 0.61, 0.51)))["gain"].holds
    rise = prompts(0.44, 0.54, 0.64, 0.54)
    assert gates(base, evaluation(rise))["gain"].holds
    few_samples = gates(evaluation(BASE, n=50), evaluation(rise, n=50))["gain"]
    assert not few_samples.holds and few_samples.limit == pytest.approx(0.098, abs=0.001)
    one_prompt_only = prompts(0.9, 0.5, 0.6, 0.5)
    assert not gates(base, evaluation(one_prompt_only))["gain"].holds


def test_reach_and_readings_may_not_fall():
    base = evaluation(prompts(0.4, 0.4, 0.4), both=[0.9, 0.8, 0.85])
    after = evaluation(prompts(0.04, 0.05, 0.04), both=[0.1, 0.1, 0.1])
    found = gates(base, after)
    assert not found["reach test-values"].holds and not found["readings"].holds
    assert found["readings"].observed == pytest.approx(0.1 - 0.85)


def test_a_split_is_not_paid_for_by_another():
    """Known families gain width while unseen ones lose half of it: the mean over both would hide it."""
    known, unseen = prompts(*[0.4] * 6), prompts(*[0.4] * 3, capability="new")
    better = prompts(*[0.6] * 6) | prompts(*[0.5] * 3, capability="new")
    base = evaluation(known | unseen, distinct=[4.0] * 6 + [4.0, 4.1, 3.9])
    found = gates(base, evaluation(better, distinct=[6.0] * 6 + [2.0, 2.1, 1.9]))
    assert found["width test-values"].holds and not found["width test-compositions"].holds


def test_many_samples_without_a_verdict_block():
    gate = gates(evaluation(BASE), evaluation(BETTER, unscorable=50))["verdicts"]
    assert (gate.holds, gate.observed, gate.limit) == (False, 0.05, 0.02)


def test_what_is_not_measured_does_not_pass():
    base = evaluation(BASE | prompts(0.5, 0.5, capability="new"))
    found = gates(base, evaluation(BETTER))
    assert not found["same prompts"].holds and found["same prompts"].observed == 2
    assert not found["capability new"].holds and found["capability new"].observed is None
    nothing = gates(base, Measurements([]))
    assert not any(gate.holds for name, gate in nothing.items())
