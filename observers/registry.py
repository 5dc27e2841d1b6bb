"""Finds an observer by what the user calls it.

Five kinds of names: ``module:Class`` (or a function; attributes may be dotted), a name
given by ``@observer``, one of ours, an entry point of the group ``changefeed.observers``, and a
module in which one observer is registered. A name given by ``@observer`` is known once its
module was imported; the others are tried in this order. Ours stand here, and not among the
entry points, which a program that was not installed does not have.

For ``module:Class`` the current directory is put at the *end* of ``sys.path``: a file
there is found without installing it, and cannot hide a module of the standard library.
The price is that such a module hides it, which is said when something is missing in it.
"""

import importlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial, reduce
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, overload

from changefeed.observers.adapters import adapt
from changefeed.observers.error_text import describe
from changefeed.observers.observer import ObserverFactory
from changefeed.runtime.backends import target_of
from changefeed.runtime.errors import UserError

GROUP = "changefeed.observers"
_OURS: Mapping[str, str] = {
    "log": "changefeed.observers.builtin:LogObserver",
    "jsonl": "changefeed.observers.builtin:JsonLinesObserver",
    "count": "changefeed.observers.builtin:CountObserver",
    "http": "changefeed.observers.http:HttpObserver",
}

Target = TypeVar("Target", bound=Callable[..., object])

_registered: dict[str, Callable[..., object]] = {}


@overload
def observer(name: str, /) -> Callable[[Target], Target]: ...


@overload
def observer(target: Target, /) -> Target: ...


def observer(given: str | Target, /) -> Callable[[Target], Target] | Target:
    """Register a class or a function: ``@observer("orders")``, or bare, under its own name."""
    if isinstance(given, str):
        return lambda target: _register(given, target)
    return _register(given.__name__, given)


def load_observer(name: str, options: Mapping[str, object] | None = None) -> ObserverFactory:
    """Return a maker of the observers called ``name``; ``options`` go to the constructor.

    Raise ``UserError`` if there is none, if it cannot be imported or if it is not of
    a shape that ``adapt`` takes.
    """
    return adapt(_find(name), options)


def spelled(target: Callable[..., object]) -> str:
    """Return what settings call a class or function: ``module:Class``."""
    made = target.func if isinstance(target, partial) else target
    return f"{made.__module__}:{getattr(made, '__qualname__', type(made).__qualname__)}"


def _register(name: str, target: Target) -> Target:
    if not name or ":" in name:
        raise UserError(f"{name!r} cannot name an observer: give a word without a colon")
    before = _registered.get(name)
    if before is not None and _source(before) != _source(target):
        places = " and ".join(f"{x.__module__}:{x.__qualname__}" for x in (before, target))
        raise UserError(f"two observers are registered as {name!r}: {places}; rename one")
    _registered[name] = target
    return target


def _source(target: Callable[..., object]) -> tuple[str | None, str]:
    """Where it is written: the same for a module that is run and imported, or reloaded."""
    module = sys.modules.get(target.__module__)
    return getattr(module, "__file__", target.__module__), target.__qualname__


def _find(name: str) -> Any:
    if ":" in name:
        return _find_spelled(name)
    if name in _registered:
        return _registered[name]
    if name in _OURS:
        module, _, attribute = _OURS[name].partition(":")
        return _attribute(_module(module), attribute)
    return _find_installed(name)


def _find_spelled(name: str) -> Any:
    module, _, attribute = name.partition(":")
    if not all(x.isidentifier() for x in f"{module}.{attribute}".split(".")):
        raise UserError(f"{name!r} is not of the form 'package.module:Class'")
    _look_here()
    return _attribute(_module(module), attribute)


def _find_installed(name: str) -> Any:
    found = {x.value: x for x in entry_points(group=GROUP, name=name)}
    if len(found) > 1:
        raise UserError(
            f"several installed packages have an observer {name!r}; name one in full: "
            f"{', '.join(sorted(found))}"
        )
    for point in found.values():
        module, attribute = target_of(point)
        return _attribute(_module(module), attribute)
    if (registered := _registered_in(name)) is not None:
        return registered
    known = sorted({*_registered, *_OURS, *(x.name for x in entry_points(group=GROUP))})
    raise UserError(
        f"there is no observer {name!r}{_nearest(name, known)} Known observers: "
        f"{', '.join(known)}. Your own is named as 'module:Class'. A name given by @observer "
        f"is known once its module is imported: name that module, if it registers one observer"
    )


def _registered_in(name: str) -> Any:
    """Import a module and return the observer it registers; ``None`` without a module."""
    if not all(x.isidentifier() for x in name.split(".")):
        return None
    _look_here()
    try:
        with _importing(name, but=(ImportError, ValueError)):  # the package that it is in
            if find_spec(name) is None:
                return None
    except (ImportError, ValueError):
        return None
    module = _module(name)
    found = {x: y for x, y in _registered.items() if y.__module__ == module.__name__}
    if len(found) != 1:
        what = f"{len(found)} ({', '.join(sorted(found))})" if found else "none"
        raise UserError(
            f"module {name!r} ({module.__file__}) should register one observer with @observer, "
            f"and registers {what}; name one as '{name}:Class'"
        )
    return next(iter(found.values()))


def _look_here() -> None:
    here = Path.cwd()
    if str(here) not in sys.path:
        sys.path.append(str(here))


def _local(top: str, here: Path) -> str | None:
    """Return how the user would write the module of that name in the current directory."""
    if (here / f"{top}.py").is_file():
        return f"./{top}.py"
    return f"./{top}/" if (here / top).is_dir() else None


def _module(name: str) -> ModuleType:
    try:
        with _importing(name, but=(ModuleNotFoundError,)):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _broken(name, error) from error
        raise UserError(
            f"there is no module {error.name!r}{_hidden(name)}; looked in {Path.cwd()} and on "
            f"the path of {sys.executable}"
        ) from error


@contextmanager
def _importing(name: str, *, but: tuple[type[BaseException], ...]) -> Iterator[None]:
    """Refuse what the user's module raises, whatever it is, except Ctrl-C and ``but``."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except but:
        raise
    except BaseException as error:
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> UserError:
    file, line = _where(error)
    return UserError(f"importing {name!r} failed at {file}, line {line}: {describe(error)}")


def _where(error: BaseException) -> tuple[str, int | None]:
    """Return the innermost line that is not of the import machinery."""
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    own = [x for x in frames if not x.filename.startswith("<frozen importlib")]
    return own[-1].filename, own[-1].lineno


def _attribute(module: ModuleType, dotted: str) -> Any:
    try:
        # A module may import only then.
        with _importing(f"{module.__name__}:{dotted}", but=(AttributeError,)):
            return reduce(getattr, dotted.split("."), module)
    except AttributeError as error:
        names = [x for x in vars(module) if not x.startswith("_")]
        raise UserError(
            f"module {module.__name__!r} ({module.__file__}) has no {dotted!r}"
            f"{_nearest(dotted, names)}{_hidden(module.__name__)}"
        ) from error


def _nearest(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else "."


def _hidden(name: str) -> str:
    """Say so if the user's own module is not the one that Python found."""
    top, here = name.partition(".")[0], Path.cwd().resolve()
    own, found = _local(top, here), sys.modules.get(top)
    if own is None or found is None:
        return ""
    file = getattr(found, "__file__", None)
    places = {Path(x).resolve() for x in (file, *getattr(found, "__path__", ())) if x}
    if places & {here / f"{top}.py", here / top}:
        return ""
    return f" ({own} is hidden by {file or 'a module of Python'}; rename yours)"
