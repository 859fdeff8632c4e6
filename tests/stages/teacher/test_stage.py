"""The teacher: the same pre-training under its own name, on clean rows."""

from data_contracts.checkpoint import StageRecord, check, facts, read_record
from stages.teacher.params import TeacherParams


def test_the_default_teacher_is_larger_and_sees_no_wrong_answer():
    from stages.base.params import BaseParams

    assert TeacherParams().mixture.wrong_share == 0.0
    assert TeacherParams().shape.hidden > BaseParams().shape.hidden


def test_the_teacher_speaks_the_students_tokens(teacher, base):
    assert check(teacher) == []
    assert read_record(teacher).stages == (StageRecord("teacher", 60),)
    ours, theirs = facts(base), facts(teacher)
    assert theirs.parameters > ours.parameters
    assert (ours.tokenizer_digest, ours.vocabulary_size) == (theirs.tokenizer_digest, theirs.vocabulary_size)
