"""prompts/1: one row per question."""

from enum import StrEnum

import pyarrow as pa


class Split(StrEnum):
    PRETRAIN = "pretrain"  # what a base and a teacher are made from
    TRAIN = "train"  # what post-training sees, with values that no pre-training saw
    VALIDATION = "validation"  # for OPD's detector and every sweep
    TEST_VALUES = "test-values"  # unseen slot values of families that are trained on
    TEST_COMPOSITIONS = "test-compositions"  # families that no stage trains on


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
