"""prompts/1: one row per question."""

import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("domain", pa.string(), nullable=False),
        pa.field("capability", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field(
            "messages",
            pa.list_(pa.struct([pa.field("role", pa.string()), pa.field("content", pa.string())])),
            nullable=False,
        ),
        pa.field("payload", pa.string(), nullable=False),  # JSON, for the domain's verifier
        pa.field("split", pa.string(), nullable=False),
        pa.field("answer_class", pa.string(), nullable=False),
        pa.field("ambiguity", pa.string(), nullable=False),  # "" if the question has one reading
        pa.field("readings", pa.int8(), nullable=False),
    ]
)
ROW_ID = ("id",)
TOKEN_COLUMNS: tuple[str, ...] = ()
