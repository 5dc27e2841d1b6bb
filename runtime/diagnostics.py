"""What a check of a feed or a lease container reports to the operator who fixes it."""

import enum
from dataclasses import dataclass

from changefeed.runtime.errors import UserError


class Severity(enum.StrEnum):
    FINE = "ok"
    WARNING = "warning"
    """Hosts can run, but something will cost more, or fail, one day."""
    PROBLEM = "problem"
    """Hosts cannot run, or not safely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One thing that was checked. ``advice`` says what to do, if anything."""

    about: str
    severity: Severity
    text: str
    advice: str = ""


def fine(about: str, text: str) -> Diagnostic:
    return Diagnostic(about=about, severity=Severity.FINE, text=text)


def warning(about: str, text: str, advice: str) -> Diagnostic:
    return Diagnostic(about=about, severity=Severity.WARNING, text=text, advice=advice)


def problem(about: str, text: str, advice: str = "") -> Diagnostic:
    return Diagnostic(about=about, severity=Severity.PROBLEM, text=text, advice=advice)


def failed(about: str, error: Exception) -> Diagnostic:
    """The text of what a person has to change is the advice; that of a silence is none."""
    look = "look at the disk or the network, and at the address"
    return problem(about, str(error), "" if isinstance(error, UserError) else look)
