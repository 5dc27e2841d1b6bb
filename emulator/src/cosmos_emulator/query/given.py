"""What a query has besides its text."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from cosmos_emulator.errors import not_supported
from cosmos_emulator.query.budget import Budget
from cosmos_emulator.query.syntax import Select

Path = tuple[str | int, ...]
DEFAULT_DISTANCE: Final = "cosine"
DEFAULT_LANGUAGE: Final = "en-US"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPolicies:
    """What a container says of its vectors and texts, a distance or a language by path, and
    the queries of its computed properties by their names.
    """

    distances: Mapping[Path, str] = field(default_factory=dict)
    languages: Mapping[Path, str] = field(default_factory=dict)
    language: str = DEFAULT_LANGUAGE  # of every other path
    computed: Mapping[str, Select] = field(default_factory=dict)


NO_POLICIES: Final = ContainerPolicies()


class Functions(Protocol):
    """User-defined functions. ``named`` raises 400 for one that is not there; ``close`` gives
    back what they took.
    """

    def named(self, name: str) -> Callable[..., Any]: ...

    def close(self) -> None: ...


class _NoFunctions:
    def named(self, name: str) -> Callable[..., Any]:
        raise not_supported(
            f"The user-defined function {name!r}",
            "Only what clients ask of the items of a container calls functions.",
        )

    def close(self) -> None:
        """Nothing was taken."""


NO_FUNCTIONS: Final[Functions] = _NoFunctions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Its parameters, the time of day (seconds since 1970), its budget, the policies and
    functions of its container, and what cuts texts of each language into words.
    """

    parameters: Mapping[str, Any]
    now: float
    budget: Budget
    policies: ContainerPolicies = NO_POLICIES
    words: dict[str, Any] = field(default_factory=dict)
    functions: Functions = NO_FUNCTIONS


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
