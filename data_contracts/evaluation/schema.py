"""evaluation/1: one row per (prompt, k).

`n` samples were drawn, `correct` of them are, `unscorable` have no verdict; `strategies` is the number of
distinct correct signatures among them.
"""

import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("prompt_id", pa.string(), nullable=False),
        pa.field("capability", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("ambiguity", pa.string(), nullable=False),
        pa.field("k", pa.int32(), nullable=False),
        pa.field("n", pa.int32(), nullable=False),
        pa.field("correct", pa.int32(), nullable=False),
        pa.field("unscorable", pa.int32(), nullable=False),
        pa.field("strategies", pa.int32(), nullable=False),
        pa.field("pass_at_k", pa.float64(), nullable=False),
        pa.field("distinct_at_k", pa.float64(), nullable=False),
        pa.field("both_at_k", pa.float64()),  # null unless the question is ambiguous
    ]
)
ROW_ID = ("prompt_id", "k")
TOKEN_COLUMNS: tuple[str, ...] = ()
