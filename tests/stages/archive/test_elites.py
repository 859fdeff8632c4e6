"""Which sample stands for a strategy: the likeliest under the base, then the shortest; all are counted."""

import itertools
from pathlib import Path

import pytest
from letters_domain import Letters

from data_contracts.values import StopReason
from stages.archive.elites import Elite, better, elite_rows
from stages.archive.stage import keep_best
from stages.domains.pool import Judgement
from stages.domains.prompt_table import PromptRow
from stages.domains.protocol import Prompt, Split
from stages.engines.params import Sampling
from stages.engines.protocol import Rollout
from stages.sampling.judged import Judged

PROMPT = Prompt(
    "p", "letters", "c", "say mo", {"value": "mo", "ambiguous": True, "rule": ""}, Split.TRAIN, "open"
)
ROW = PromptRow(PROMPT, [{"role": "user", "content": "say mo"}], "C", 2)


def sample(text: str, logprob: float, length: int = 2) -> Judged:
    domain = Letters(Path())
    verdict = domain.verify([PROMPT], [text])[0]
    signature = domain.signature(PROMPT, text) if verdict.reward else None
    rollout = Rollout(0, [7] * length, [logprob / length] * length, StopReason.EOS, 0, 0, Sampling())
    return Judged(ROW, [2, 3], 0, rollout, text, Judgement(verdict, signature))


def test_the_likelier_stands_for_the_cell_in_any_order():
    group = [sample("mo", -3.0), sample("mo", -1.0, 4), sample("mo", -2.0)]
    for order in itertools.permutations(group):
        cells: dict[str, Elite] = {}
        assert keep_best(cells, order) == 1
        assert list(cells) == ["plain/small"]
        assert cells["plain/small"] == Elite(group[1], 3)


def test_of_equally_likely_ones_the_shorter_stands():
    long, short = sample("mo", -4.0, 8), sample("mo", -4.0, 2)
    assert better(Elite(long, 1), short) == Elite(short, 2)
    assert better(Elite(short, 5), long) == Elite(short, 6)


def test_wrong_and_unscorable_samples_have_no_cell():
    cells: dict[str, Elite] = {}
    assert keep_best(cells, [sample("ka", -0.1), sample("mo?", -0.1)]) == 0
    assert cells == {}


def test_forms_and_readings_are_cells_of_their_own_and_new_only_once():
    group = [sample("mo", -1), sample("(mo)", -1), sample("MO", -1), sample("<MO>", -1), sample("(mo)", -2)]
    cells: dict[str, Elite] = {}
    assert keep_best(cells, group) == 4
    assert keep_best(cells, group) == 0
    rows = elite_rows({"p": cells}, 0.8, "sha256:b", "letters/1")
    assert [row["signature"] for row in rows] == sorted(cells)
    assert {row["signature"]: (row["count"], row["reading"]) for row in rows} == {
        "angle/capital": (2, "capital"),
        "plain/capital": (2, "capital"),
        "plain/small": (2, "small"),
        "round/small": (4, "small"),
    }
    assert [row["base_logprob"] for row in rows] == pytest.approx([-1.0] * 4)
