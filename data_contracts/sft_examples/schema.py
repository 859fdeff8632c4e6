"""sft_examples/1: one row per example; `loss_mask` is 1 on the tokens that are trained on."""

import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("prompt_id", pa.string(), nullable=False),
        pa.field("capability", pa.string(), nullable=False),
        pa.field("tokens", pa.list_(pa.int32()), nullable=False),
        pa.field("loss_mask", pa.list_(pa.int8()), nullable=False),
    ]
)
ROW_ID = ("prompt_id",)
TOKEN_COLUMNS = ("tokens",)
