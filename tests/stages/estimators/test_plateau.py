"""The detector on curves whose end is known, and across a resume."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from stages.errors import GuardError
from stages.estimators.plateau import Decision, Plateau, PlateauDetector

PLATEAU = Plateau(delta=0.01, patience=3, min_steps=0)
NEVER = 10_000


def decisions(plateau, scores, standard_error=0.0, every=1, max_steps=NEVER):
    detector = PlateauDetector(plateau, max_steps)
    return [detector.update((i + 1) * every, score, standard_error) for i, score in enumerate(scores)]


@pytest.mark.oracle("6.4")
@given(st.floats(1, 30), st.floats(0.05, 0.9))
def test_fires_within_patience_of_saturation(rate, height):
    scores = [height * (1 - math.exp(-i / rate)) for i in range(400)]
    taken = decisions(PLATEAU, scores)
    fired = taken.index(Decision.PLATEAU)
    # what is left to gain counts once at most, and no later than patience evaluations from here
    saturated = next(i for i, score in enumerate(scores) if height - score <= PLATEAU.delta)
    assert fired <= saturated + 2 * PLATEAU.patience
    # and it did not fire while patience evaluations still brought a gain
    assert scores[fired] - scores[fired - PLATEAU.patience] <= PLATEAU.delta


@pytest.mark.oracle("6.4")
@given(st.floats(0.0034, 0.5), st.floats(-1, 1))
def test_never_fires_on_a_line_that_gains_within_patience(slope, start):
    taken = decisions(PLATEAU, [start + slope * i for i in range(200)])
    assert set(taken) == {Decision.CONTINUE}


def test_fires_on_a_flat_or_falling_curve_after_patience():
    assert decisions(PLATEAU, [0.5] * 4).index(Decision.PLATEAU) == 3
    assert decisions(PLATEAU, [0.5, 0.4, 0.3, 0.2]).index(Decision.PLATEAU) == 3


def test_a_gain_within_noise_is_not_a_gain():
    scores = [0.5, 0.52, 0.53, 0.54]
    assert Decision.PLATEAU not in decisions(PLATEAU, scores, standard_error=0.0)
    assert decisions(PLATEAU, scores, standard_error=0.05)[-1] is Decision.PLATEAU


def test_min_and_max_steps():
    bounded = Plateau(delta=0.01, patience=2, min_steps=60)
    taken = decisions(bounded, [0.5] * 6, every=10, max_steps=100)
    assert [d is Decision.PLATEAU for d in taken] == [False] * 5 + [True]
    at_the_end = decisions(bounded, [0.5] * 6, every=10, max_steps=60)
    assert at_the_end[-1] is Decision.PLATEAU  # what it was stopped for, also where it would have ended
    rising = decisions(bounded, [0.1 * i for i in range(10)], every=10, max_steps=100)
    assert rising == [Decision.CONTINUE] * 9 + [Decision.MAX_STEPS]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.integers(0, 29))
def test_resume_decides_as_an_undisturbed_run(scores, cut):
    undisturbed = decisions(PLATEAU, scores, standard_error=0.02)
    detector = PlateauDetector(PLATEAU, NEVER)
    resumed = []
    for i, score in enumerate(scores):
        if i == cut:
            detector = PlateauDetector.from_json(PLATEAU, NEVER, detector.to_json())
        resumed.append(detector.update(i + 1, score, 0.02))
    assert resumed == undisturbed


def test_best_step_is_recorded():
    detector = PlateauDetector(PLATEAU, NEVER)
    for step, score in [(10, 0.2), (20, 0.6), (30, 0.605)]:
        detector.update(step, score, 0.0)
    assert (detector.state.best, detector.state.best_step) == (0.6, 20)


def test_refusals():
    detector = PlateauDetector(PLATEAU, NEVER)
    detector.update(5, 0.1, 0.0)
    with pytest.raises(GuardError, match="order of steps"):
        detector.update(5, 0.2, 0.0)
    with pytest.raises(GuardError, match="not a measurement"):
        detector.update(6, float("nan"), 0.0)
    with pytest.raises(ValidationError):
        Plateau(patiance=2)
