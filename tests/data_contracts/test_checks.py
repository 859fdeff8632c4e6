"""Each rule of each contract refuses what it is there for, and says column, expectation and rows."""

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from data_contracts.registry import PACKAGES, contract
from data_contracts.rows import conform

Rows = list[dict[str, Any]]


def table(name: str, rows: Rows, **metadata: str) -> pa.Table:
    agreed = contract(name)
    keys = {f"posttrain.{key}": value for key, value in metadata.items()}
    return conform(rows, agreed, agreed.schema.with_metadata(keys))


def found(name: str, rows: Rows, **metadata: str) -> set[tuple[str, str]]:
    return {
        (breach.column, breach.expectation) for breach in contract(name).check(table(name, rows, **metadata))
    }


@pytest.mark.parametrize("name", PACKAGES)
def test_good_rows_pass_and_an_empty_table_does_not(name: str, rows_of: dict[str, Rows]) -> None:
    assert contract(name).check(table(name, rows_of[name])) == []
    assert found(name, []) == {("", "at least one row")}


@pytest.mark.parametrize("name", PACKAGES)
def test_suites_are_of_scalar_columns_of_their_contract(name: str) -> None:
    suite = contract(name).suite()
    assert suite["name"] == name
    for expectation in suite["expectations"]:
        kwargs = expectation["kwargs"]
        columns = [kwargs[key] for key in ("column", "column_A", "column_B") if key in kwargs]
        assert set(columns + kwargs.get("column_list", [])) <= set(contract(name).scalar_columns)
        assert expectation["severity"] in ("critical", "warning")
        assert expectation["description"]


BROKEN: list[tuple[str, dict[str, Any], str, str]] = [
    ("rollouts/1", {"logprobs": [-0.5, math.nan]}, "logprobs", "finite"),
    ("rollouts/1", {"logprobs": [-0.5, -math.inf]}, "logprobs", "finite"),
    ("rollouts/1", {"logprobs": [-0.5, 0.01]}, "logprobs", "at most 0"),
    ("rollouts/1", {"logprobs": [-0.5]}, "logprobs", "as long as completion_ids"),
    ("rollouts/1", {"logprobs": [-0.5, None]}, "logprobs", "no null elements"),
    ("rollouts/1", {"weight_version": [7]}, "weight_version", "as long as completion_ids"),
    ("rollouts/1", {"weight_version": [7, -1]}, "weight_version", "at least 0"),
    ("rollouts/1", {"completion_ids": [4, 10]}, "completion_ids", "token ids in [0, 10)"),
    ("rollouts/1", {"prompt_ids": [1, -1]}, "prompt_ids", "token ids in [0, 10)"),
    ("rollouts/1", {"prompt_ids": []}, "prompt_ids", "at least one token"),
    ("rollouts/1", {"reward": None}, "reward", "a reward or a reason why unscorable, never both or neither"),
    (
        "rollouts/1",
        {"unscorable": "deadline"},
        "reward",
        "a reward or a reason why unscorable, never both or neither",
    ),
    ("rollouts/1", {"reward": None, "unscorable": " "}, "unscorable", "not blank"),
    ("rollouts/1", {"reward": math.nan}, "reward", "finite"),
    ("rollouts/1", {"stop_reason": "banana"}, "stop_reason", "one of eos, length"),
    ("rollouts/1", {"temperature": 0.0}, "temperature", "above 0"),
    ("rollouts/1", {"top_p": 0.0}, "top_p", "in (0, 1]"),
    ("rollouts/1", {"top_k": -1}, "top_k", "at least 0"),
    ("rollouts/1", {"prompt_id": "other"}, "prompt_id", "one prompt in a group"),
    ("rollouts/1", {"sample": 4}, "sample", "0..G-1 within its group (the group is whole)"),
    ("elite_archive/1", {"rl_steps": 3}, "rl_steps", "0 (the base has no RL ancestor)"),
    ("elite_archive/1", {"reward": 0.5}, "reward", "1 (only solved cells)"),
    ("elite_archive/1", {"base_digest": "sha256:other"}, "base_digest", "the same in every row"),
    ("elite_archive/1", {"signature": "join"}, "prompt_id, signature", "unique"),
    ("elite_archive/1", {"base_logprob": 1.0}, "base_logprob", "at most 0"),
    ("elite_archive/1", {"count": 0}, "count", "at least 1"),
    ("elite_archive/1", {"signature_version": "2"}, "signature_version", "the same in every row"),
    ("sft_examples/1", {"loss_mask": [0, 0, 0]}, "loss_mask", "at least one trainable token"),
    ("sft_examples/1", {"loss_mask": [0, 2, 1]}, "loss_mask", "0 or 1"),
    ("sft_examples/1", {"loss_mask": [0, 1]}, "loss_mask", "as long as tokens"),
    ("sft_examples/1", {"tokens": [1, 2, 10]}, "tokens", "token ids in [0, 10)"),
    ("prompts/1", {"id": "p0"}, "id", "unique"),
    (
        "prompts/1",
        {"split": "dev"},
        "split",
        "one of pretrain, train, validation, test-values, test-compositions",
    ),
    ("prompts/1", {"readings": 3}, "readings", "one of 1, 2"),
    ("prompts/1", {"readings": 2}, "readings", "2 iff ambiguity is named"),
    ("prompts/1", {"ambiguity": "C"}, "readings", "2 iff ambiguity is named"),
    ("prompts/1", {"messages": []}, "messages", "at least one message"),
    ("prompts/1", {"messages": [{"role": None, "content": "x"}]}, "messages", "no null elements"),
    ("prompts/1", {"payload": "[1]"}, "payload", "a JSON object"),
    ("prompts/1", {"payload": "{"}, "payload", "a JSON object"),
    ("prompts/1", {"text": "  "}, "text", "not blank"),
    ("evaluation/1", {"pass_at_k": 1.5}, "pass_at_k", "in [0, 1]"),
    ("evaluation/1", {"pass_at_k": math.nan}, "pass_at_k", "finite"),
    ("evaluation/1", {"pass_at_k": 0.25, "distinct_at_k": 0.5}, "pass_at_k", "not falling in k"),
    ("evaluation/1", {"correct": 0, "strategies": 0}, "pass_at_k", "0 iff nothing is correct"),
    ("evaluation/1", {"strategies": 3}, "strategies", "in [0, correct]"),
    ("evaluation/1", {"strategies": 0}, "strategies", "at least 1 where a sample is correct"),
    ("evaluation/1", {"distinct_at_k": 2.5}, "distinct_at_k", "in [0, min(strategies, k)]"),
    ("evaluation/1", {"distinct_at_k": 0.5}, "distinct_at_k", "at least pass_at_k"),
    ("evaluation/1", {"both_at_k": None}, "both_at_k", "null iff the question is not ambiguous"),
    ("evaluation/1", {"ambiguity": ""}, "both_at_k", "null iff the question is not ambiguous"),
    ("evaluation/1", {"both_at_k": -0.5}, "both_at_k", "in [0, 1]"),
    ("evaluation/1", {"k": 5}, "k", "in [1, n]"),
    ("evaluation/1", {"unscorable": 3}, "correct", "correct + unscorable in [0, n]"),
    ("evaluation/1", {"k": 1}, "prompt_id, k", "unique"),
]


@pytest.mark.parametrize(("name", "change", "column", "expectation"), BROKEN)
def test_one_bad_row_is_named(
    name: str, change: dict[str, Any], column: str, expectation: str, rows_of: dict[str, Rows]
) -> None:
    rows = rows_of[name]
    rows[-1] = {**rows[-1], **change}
    breaches = contract(name).check(table(name, rows, vocabulary="10"))
    matching = [breach for breach in breaches if (breach.column, breach.expectation) == (column, expectation)]
    assert matching, breaches
    breach = matching[0]
    assert len(rows) - 1 in breach.positions
    named = ":".join(str(rows[-1][key]) for key in contract(name).row_id)
    assert named in breach.rows or breach.count > 3
    assert column in str(breach)
    assert expectation in str(breach)


def test_at_most_three_rows_are_named_and_all_are_counted(rollouts: Callable[..., Rows]) -> None:
    rows = [{**row, "temperature": -1.0} for row in rollouts(3, 4)]
    (breach,) = contract("rollouts/1").check(table("rollouts/1", rows))
    assert breach.rows == ("p0:0/p0:0", "p0:0/p0:1", "p0:0/p0:2")
    assert (breach.count, breach.positions) == (12, tuple(range(12)))
    assert str(breach) == "column temperature: above 0 (rows p0:0/p0:0, p0:0/p0:1, p0:0/p0:2 and 9 more)"


def test_a_split_group_is_refused(rollouts: Callable[..., Rows]) -> None:
    rows = rollouts(3, 4)
    del rows[5]  # the second sample of the second group
    breaches = {breach.column: breach for breach in contract("rollouts/1").check(table("rollouts/1", rows))}
    assert breaches["sample"].rows == ("p1:0/p1:3",)
    assert breaches["group_id"].expectation == "groups of equal size"
    assert breaches["group_id"].positions == (4, 5, 6)


def test_a_group_of_one_is_refused(rollouts: Callable[..., Rows]) -> None:
    assert found("rollouts/1", rollouts(3, 1)) == {("group_id", "more than one sample in a group")}


def test_a_group_may_lie_scattered_over_chunks(rollouts: Callable[..., Rows]) -> None:
    rows = rollouts(4, 3)
    scattered = rows[::2] + rows[1::2]
    chunks = pa.concat_tables([table("rollouts/1", scattered[at : at + 5]) for at in range(0, 12, 5)])
    assert contract("rollouts/1").check(chunks) == []


def test_rows_of_later_chunks_and_of_slices_are_found(rollouts: Callable[..., Rows]) -> None:
    rows = rollouts(4, 3)
    rows[7] = {**rows[7], "logprobs": [math.nan, -1.0]}
    whole = table("rollouts/1", rows)
    for cut in (whole, pa.concat_tables([whole.slice(0, 5), whole.slice(5, 7)])):
        (breach,) = contract("rollouts/1").check(cut)
        assert (breach.column, breach.positions) == ("logprobs", (7,))


def test_a_null_where_none_may_be_is_named(rollouts: Callable[..., Rows]) -> None:
    rows = rollouts()
    good = table("rollouts/1", rows)
    at = good.schema.get_field_index("text")
    holed = good.set_column(at, good.schema.field("text"), pa.array([None, *["x"] * 11]))
    (breach,) = contract("rollouts/1").check(holed)
    assert (breach.column, breach.expectation, breach.rows) == ("text", "not null", ("p0:0/p0:0",))


def test_a_logprob_a_hair_above_zero_is_rounding(rollouts: Callable[..., Rows]) -> None:
    rows = rollouts()
    rows[0]["logprobs"] = [1e-5, -0.0]
    assert found("rollouts/1", rows) == set()
