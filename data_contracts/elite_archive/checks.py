"""Rules of elite_archive/1: solved by one base model that no RL has touched, one elite per cell."""

import numpy as np

from data_contracts.expectations import TableUnderCheck


def check(table: TableUnderCheck) -> None:
    table.unique("prompt_id", "signature")
    table.not_blank("signature")
    table.expect("rl_steps", "0 (the base has no RL ancestor)", table.numbers("rl_steps") != 0)
    table.expect("reward", "1 (only solved cells)", table.numbers("reward") != 1)
    table.expect("base_logprob", "at most 0", table.numbers("base_logprob") > 1e-3)
    table.expect(
        "logprobs", "as long as completion_ids", table.lengths("logprobs") != table.lengths("completion_ids")
    )
    table.expect("temperature", "above 0", ~(table.numbers("temperature") > 0))
    table.expect("count", "at least 1", table.numbers("count") < 1)
    for column in ("base_digest", "signature_version"):
        table.not_blank(column)
        codes = table.codes(column)
        table.expect(column, "the same in every row", codes != np.bincount(codes).argmax())
    for column in ("prompt_ids", "completion_ids"):
        table.expect(column, "at least one token", table.lengths(column) == 0)
