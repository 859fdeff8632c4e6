"""Rules of sft_examples/1. A row whose mask is all zero trains on nothing and looks healthy: refused."""

import numpy as np

from data_contracts.expectations import TableUnderCheck


def check(table: TableUnderCheck) -> None:
    table.expect("tokens", "at least one token", table.lengths("tokens") == 0)
    table.expect("loss_mask", "as long as tokens", table.lengths("loss_mask") != table.lengths("tokens"))
    table.expect("loss_mask", "0 or 1", table.rows_with_element("loss_mask", lambda x: (x != 0) & (x != 1)))
    trained = table.rows_with_element("loss_mask", lambda x: x == 1)
    table.expect("loss_mask", "at least one trainable token", np.logical_not(trained))
