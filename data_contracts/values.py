"""What columns of several contracts may say. Without pyarrow: a verifier's worker imports it."""

from enum import StrEnum


class Split(StrEnum):
    PRETRAIN = "pretrain"  # what a base and a teacher are made from
    TRAIN = "train"  # what post-training sees, with values that no pre-training saw
    VALIDATION = "validation"  # unseen values of trained families: OPD's plateau and every sweep
    TEST_VALUES = "test-values"  # unseen values of trained families
    TEST_COMPOSITIONS = "test-compositions"  # families that no stage trains on, made of known parts


class StopReason(StrEnum):
    EOS = "eos"
    LENGTH = "length"  # ran into max_new_tokens: truncated
