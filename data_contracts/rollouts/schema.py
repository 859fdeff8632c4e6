"""rollouts/1: one row per sampled completion.

`logprobs` are of the distribution that sampled (after temperature, top-p, top-k); `weight_version` is the
policy version that sampled each token. `head_ids` and `head_logprobs` are the sampler's `head_size` most
likely tokens at each position, flat, position by position; empty with `head_size` 0 where not recorded.
"""

import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("prompt_id", pa.string(), nullable=False),
        pa.field("group_id", pa.string(), nullable=False),
        pa.field("sample", pa.int32(), nullable=False),
        pa.field("capability", pa.string(), nullable=False),
        pa.field("prompt_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("completion_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("logprobs", pa.list_(pa.float32()), nullable=False),
        pa.field("head_size", pa.int32(), nullable=False),
        pa.field("head_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("head_logprobs", pa.list_(pa.float32()), nullable=False),
        pa.field("weight_version", pa.list_(pa.int32()), nullable=False),
        pa.field("temperature", pa.float32(), nullable=False),
        pa.field("top_p", pa.float32(), nullable=False),
        pa.field("top_k", pa.int32(), nullable=False),
        pa.field("stop_reason", pa.string(), nullable=False),
        pa.field("reward", pa.float32()),  # null iff unscorable
        pa.field("unscorable", pa.string()),  # the reason, null iff there is a reward
        pa.field("reading", pa.string()),
        pa.field("signature", pa.string()),
        pa.field("text", pa.string(), nullable=False),
        pa.field("step", pa.int32(), nullable=False),
    ]
)
ROW_ID = ("prompt_id", "group_id", "sample")
TOKEN_COLUMNS = ("prompt_ids", "completion_ids", "head_ids")
