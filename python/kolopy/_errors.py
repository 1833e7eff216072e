# SPDX-License-Identifier: Apache-2.0
"""The exceptions: one class for each status of the C API, whose sentence they carry."""

from __future__ import annotations

import enum


class Status(enum.IntEnum):
    """The statuses of kolo.h, and their numbers."""

    OK = 0
    INVALID_ARGUMENT = 1
    DUPLICATE_NAME = 2
    MISMATCH = 3
    UNSUPPORTED = 4
    NOT_INITIALIZED = 5
    INVALID_SETTING = 6
    TIMEOUT = 7
    RANK_LOST = 8
    SHUT_DOWN = 9
    TRANSPORT = 10
    USER_EXCEPTION = 11
    OUT_OF_MEMORY = 12
    IO = 13
    EXPIRED = 14
    CANCELLED = 15
    PENDING = 1000


class Error(RuntimeError):
    """What every error of Kolo is. `code` is its Status; the text says what was given, and what would be right."""

    code: Status = Status.OK

    @property
    def ends_job(self) -> bool:
        """Whether the job has ended: save and leave. After the other errors it goes on."""
        return self.code in (Status.TIMEOUT, Status.RANK_LOST, Status.TRANSPORT, Status.USER_EXCEPTION)


class InvalidArgumentError(Error):
    """At the call; nothing was sent."""

    code = Status.INVALID_ARGUMENT


class DuplicateNameError(Error):
    """The name is in flight already."""

    code = Status.DUPLICATE_NAME


class MismatchError(Error):
    """Ranks disagree about this tensor. It fails on every rank, and the job goes on."""

    code = Status.MISMATCH


class UnsupportedError(Error):
    """Nothing does this with this type, operation or device; or the process is a fork of a rank."""

    code = Status.UNSUPPORTED


class NotInitializedError(Error):
    """There is no context: it was not made, or has been shut down."""

    code = Status.NOT_INITIALIZED


class InvalidSettingError(Error):
    """A bad value in the environment or in the settings."""

    code = Status.INVALID_SETTING


class TimeoutError(Error):
    """The operation's deadline passed. The job has ended."""

    code = Status.TIMEOUT


class RankLostError(Error):
    """Another rank's process died, or left the job. The job has ended."""

    code = Status.RANK_LOST


class ShutDownError(Error):
    """The context was shut down before the operation ran."""

    code = Status.SHUT_DOWN


class TransportError(Error):
    """MPI, TCP or the system failed. The job has ended."""

    code = Status.TRANSPORT


class UserExceptionError(Error):
    """A rank's own code failed and left the job; the text contains its reason. The job has ended."""

    code = Status.USER_EXCEPTION


class OutOfMemoryError(Error):
    """There is no memory for this. The job goes on."""

    code = Status.OUT_OF_MEMORY


class IoError(Error):
    """A file cannot be read or written."""

    code = Status.IO


class ExpiredError(Error):
    """The deadline of a message passed, or of a group to be made (`fails_alone`). The job goes on."""

    code = Status.EXPIRED


class CancelledError(Error):
    """A receive was cancelled, or a message given up by the other side."""

    code = Status.CANCELLED


_CLASSES = {int(one.code): one for one in Error.__subclasses__()}


def error_of(status: int, sentence: str) -> Error:
    """The exception for what a function of the C API has returned."""
    return _CLASSES.get(status, Error)(sentence)
