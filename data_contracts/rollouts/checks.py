"""Rules of rollouts/1: aligned token columns, honest verdicts, whole groups."""

import numpy as np

from data_contracts.expectations import TableUnderCheck
from data_contracts.values import StopReason

LOGPROB_TOLERANCE = 1e-4  # float32 log-softmax of a certain token may come out this much above 0


def check(table: TableUnderCheck) -> None:
    _tokens(table)
    _head(table)
    _sampler(table)
    _verdicts(table)
    _groups(table)


def _tokens(table: TableUnderCheck) -> None:
    lengths = table.lengths("completion_ids")
    table.expect("prompt_ids", "at least one token", table.lengths("prompt_ids") == 0)
    table.expect("completion_ids", "at least one token", lengths == 0)
    for column in ("logprobs", "weight_version"):
        table.expect(column, "as long as completion_ids", table.lengths(column) != lengths)
    above = table.rows_with_element("logprobs", lambda x: x > LOGPROB_TOLERANCE)
    table.expect("logprobs", "at most 0", above)
    negative = table.rows_with_element("weight_version", lambda x: x < 0)
    table.expect("weight_version", "at least 0", negative)


def _head(table: TableUnderCheck) -> None:
    size = table.numbers("head_size")
    table.expect("head_size", "at least 0", size < 0)
    for column in ("head_ids", "head_logprobs"):
        table.expect(
            column,
            "head_size entries for each token of completion_ids",
            table.lengths(column) != size * table.lengths("completion_ids"),
        )
    above = table.rows_with_element("head_logprobs", lambda x: x > LOGPROB_TOLERANCE)
    table.expect("head_logprobs", "at most 0", above)


def _sampler(table: TableUnderCheck) -> None:
    table.in_set("stop_reason", [reason.value for reason in StopReason])
    table.expect("temperature", "above 0", ~(table.numbers("temperature") > 0))
    top_p = table.numbers("top_p")
    table.expect("top_p", "in (0, 1]", ~((top_p > 0) & (top_p <= 1)))
    table.expect("top_k", "at least 0", table.numbers("top_k") < 0)


def _verdicts(table: TableUnderCheck) -> None:
    either = table.null("reward") != table.null("unscorable")
    table.expect("reward", "a reward or a reason why unscorable, never both or neither", ~either)
    table.not_blank("unscorable")


def _groups(table: TableUnderCheck) -> None:
    """Samples of a group are 0..G-1, once each, of one prompt; all groups have the same G, and G > 1."""
    table.unique("group_id", "sample")
    group_N = table.codes("group_id")
    sample_N = table.numbers("sample").astype(np.int64)
    size_N = np.bincount(group_N)[group_N]
    table.expect("group_id", "more than one sample in a group", size_N == 1)
    table.expect(
        "sample", "0..G-1 within its group (the group is whole)", (sample_N < 0) | (sample_N >= size_N)
    )
    usual = int(np.bincount(size_N).argmax())
    table.expect(
        "group_id", "groups of equal size", size_N != usual, detail=f"most rows are in groups of {usual}"
    )
    prompt_N = table.codes("prompt_id")
    first_of_group = np.unique(group_N, return_index=True)[1]
    table.expect("prompt_id", "one prompt in a group", prompt_N != prompt_N[first_of_group][group_N])
