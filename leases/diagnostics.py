"""What a look at a container found: for people, who are to know how to mend it."""

import enum
from dataclasses import dataclass


class Severity(enum.StrEnum):
    FINE = "ok"
    WARNING = "warning"
    """Hosts can run, but something will cost more, or fail, one day."""
    PROBLEM = "problem"
    """Hosts cannot run, or not safely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at. ``advice`` says what to do, where something is to do."""

    about: str
    gravity: Severity
    text: str
    advice: str = ""


def fine(about: str, text: str) -> Finding:
    return Finding(about=about, gravity=Severity.FINE, text=text)


def warning(about: str, text: str, advice: str) -> Finding:
    return Finding(about=about, gravity=Severity.WARNING, text=text, advice=advice)


def problem(about: str, text: str, advice: str = "") -> Finding:
    return Finding(about=about, gravity=Severity.PROBLEM, text=text, advice=advice)
