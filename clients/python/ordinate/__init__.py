"""The Python client of Ordinate; see `Client`."""

from .client import Client
from .errors import (
    BeyondTail,
    CallError,
    Closed,
    Exists,
    Full,
    Invalid,
    LogError,
    MaybeExecuted,
    Moved,
    NoSuchLog,
    Refused,
    Sealed,
    TimedOut,
    TooLarge,
    Trimmed,
    Unarchived,
    DiskFull,
    Unreadable,
    Unsupported,
)
from .kv import Item, Level, Mismatch, MismatchAt, Page, Versioned, Written
from .link import tls_context
from .log import LogEntries, LogStat, Part, by_log
from .sequence import SequencePosition

__all__ = [
    "BeyondTail", "CallError", "Client", "Closed", "Exists", "Full", "Invalid", "Item", "Level", "LogEntries", "LogError",
    "LogStat", "MaybeExecuted", "Mismatch", "MismatchAt", "Moved", "NoSuchLog", "Page", "Part", "SequencePosition", "Refused", "Sealed", "TimedOut",
    "DiskFull", "TooLarge", "Trimmed", "Unarchived", "Unreadable", "Unsupported", "Versioned", "Written", "by_log", "tls_context",
]
