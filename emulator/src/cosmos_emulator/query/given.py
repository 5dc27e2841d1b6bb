"""What a query has besides its text."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cosmos_emulator.errors import not_supported
from cosmos_emulator.query.budget import Budget

Path = tuple[str | int, ...]
DEFAULT_DISTANCE: Final = "cosine"
DEFAULT_LANGUAGE: Final = "en-US"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPolicies:
    """What a container says of its vectors and texts: a distance or a language by path."""

    distances: Mapping[Path, str] = field(default_factory=dict)
    languages: Mapping[Path, str] = field(default_factory=dict)
    language: str = DEFAULT_LANGUAGE  # of every other path


NO_POLICIES: Final = SearchPolicies()


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Its parameters, the time of day (seconds since 1970), its budget, the policies of its
    container, and what cuts texts of each language into words.
    """

    parameters: Mapping[str, Any]
    now: float
    budget: Budget
    policies: SearchPolicies = NO_POLICIES
    words: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function, and the fewest and most arguments it takes."""

    arity: tuple[int, int]
    call: Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFunction:
    """A function that depends on the query, and keeps to its budget by itself.

    ``bound`` makes it, once for a call in the text of the query, from what the query has and
    the path of the first argument that is a property of the item.
    """

    arity: tuple[int, int]
    bound: Callable[[Given, Path], Callable[..., Any]]


def package_of_extra(name: str, function: str) -> Any:
    """Import a package that only searches need; 400 that names the extra without it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise not_supported(
            f"{function}, without the extra of the emulator that searches,",
            "Install cosmos-emulator[search].",
        ) from error
