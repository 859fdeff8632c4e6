"""elite_archive/1: one row per (prompt, strategy) that the frozen base solved, `count` times.

`logprobs` are the base's of each completion token at `temperature`, and `base_logprob` is their sum.
"""

import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("prompt_id", pa.string(), nullable=False),
        pa.field("capability", pa.string(), nullable=False),
        pa.field("prompt_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("completion_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("signature", pa.string(), nullable=False),
        pa.field("reading", pa.string(), nullable=False),
        pa.field("reward", pa.float32(), nullable=False),
        pa.field("logprobs", pa.list_(pa.float32()), nullable=False),
        pa.field("temperature", pa.float32(), nullable=False),
        pa.field("base_logprob", pa.float32(), nullable=False),
        pa.field("count", pa.int32(), nullable=False),
        pa.field("base_digest", pa.string(), nullable=False),
        pa.field("rl_steps", pa.int32(), nullable=False),
        pa.field("signature_version", pa.string(), nullable=False),
    ]
)
ROW_ID = ("prompt_id", "signature")
TOKEN_COLUMNS = ("prompt_ids", "completion_ids")
