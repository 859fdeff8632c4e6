"""Errors that a user meets: one sentence that says what is wrong and what to do."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a process of posttrain tells its caller."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CONTRACT_BREACHED = 3
    AUDIT_MISMATCH = 4
    STOPPED = 75  # EX_TEMPFAIL: stopped at a step boundary, resumable


class PosttrainError(Exception):
    """Base of every error whose message is meant to be read by a user."""

    exit_code = ExitCode.FAILED


class UsageError(PosttrainError):
    """The request cannot be carried out as written."""

    exit_code = ExitCode.USAGE


class GuardError(PosttrainError):
    """A guard of methods.md refused the run before any work was lost."""


class StageStopped(PosttrainError):
    """The stage was asked to stop and did so at a step boundary; it resumes from there."""

    exit_code = ExitCode.STOPPED
