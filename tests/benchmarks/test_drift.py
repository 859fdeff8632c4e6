"""The drift benchmark: what must stay exactly where it is does, and the rest moves."""

import pytest
import torch

from benchmarks.proof import drift
from benchmarks.proof.tabular import Tabular
from stages.estimators.params import Truncate, Uncorrected, Unregularised


@pytest.fixture(autouse=True)
def after_ten_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "REPORTED", (10,))


@pytest.mark.parametrize("regulariser", [Uncorrected(), Truncate(high=1.0)])
@pytest.mark.parametrize("sampler", drift.SAMPLERS)
def test_later_positions_move_without_centering_only(
    regulariser: Uncorrected | Truncate, sampler: str
) -> None:
    centred = drift.drift([0, 1], regulariser, True, 10)[sampler]
    without = drift.drift([0, 1], regulariser, False, 10)[sampler]
    assert max(map(abs, centred["kl"]["10"])) < drift.ROUNDING
    assert min(without["kl"]["10"]) > 1e3 * drift.ROUNDING
    assert min(without["mismatch"]) > 1e-6, "the sampler is another policy"


def test_the_exact_ratio_moves_nothing() -> None:
    for found in drift.drift([0, 1], Unregularised(), False, 10).values():
        assert max(map(abs, found["kl"]["10"])) < drift.ROUNDING


def test_a_world_is_the_tabular_policy_of_its_table() -> None:
    setting = drift.worlds([0, 1])
    logits = setting.logits_WSTV(setting.table)
    for world in range(len(setting.stale_W)):
        policy = Tabular([rows[world] for rows in setting.table])
        assert torch.equal(logits[world], policy.logits_STV())
        first = policy.tokens_ST[:, 0]
        assert len(set(zip(first.tolist(), setting.reward_WS[world].tolist(), strict=True))) == 4
    assert setting.stale_W.tolist() == [False] * 4 + [True] * 2
