"""Backends by the scheme of an address: our own, and those that other packages bring.

A backend is a constant that describes how one kind of feed or lease container is opened
and checked. Ours are in a table, because a checkout or a zip on Spark's executors has no
metadata. Other packages name theirs by an entry point, whose name is the scheme::

    [project.entry-points."changefeed.stores"]
    nats = "changefeed_nats.leases:BACKEND"

A backend is imported when its scheme is first asked for. The schemes of the built-in ones
cannot be taken over.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlsplit

from changefeed.runtime.errors import UserError

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class Address:
    """``SCHEME:PLACE``, as settings and command lines name feeds and lease containers."""

    scheme: str
    place: str

    def __str__(self) -> str:
        return f"{self.scheme}:{self.place}"


def _unchanged(place: str) -> str:
    return place


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """What every backend says about itself.

    ``name`` is that of its own settings, ``[backends.NAME]``, and ``settings`` the model
    that checks them, if it has any. ``place`` shows what follows the scheme in an address;
    ``absolute`` makes one independent of the working directory.
    """

    name: str
    place: str
    settings: "type[BaseModel] | None" = None
    absolute: Callable[[str], str] = _unchanged


BackendT = TypeVar("BackendT", bound=Backend)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIn:
    """Where one of our own backends is: ``module:CONSTANT``.

    ``package`` is the import name that it needs beyond our dependencies, ``extra`` what
    installs it. ``listed`` is false where the address only exists to be explained.
    """

    target: str
    package: str = ""
    extra: str = ""
    listed: bool = True

    @property
    def installed(self) -> bool:
        return not self.package or find_spec(self.package) is not None


class BackendTable(Generic[BackendT]):
    """All backends of one group of entry points.

    ``what`` completes "... is not an address of ...". ``refuse`` makes the error that is raised
    for an address that cannot be used, from its text. The first scheme is that of files.
    """

    def __init__(
        self,
        kind: type[BackendT],
        *,
        what: str,
        group: str,
        built_in: Mapping[str, BuiltIn],
        refuse: Callable[[str], Exception],
    ) -> None:
        self._kind = kind
        self._what = what
        self._group = group
        self._built_in = built_in
        self._refuse = refuse

    def find(self, text: str) -> tuple[BackendT, Address]:
        """Return the backend of an address, and the address in its parts."""
        scheme, colon, place = text.partition(":")
        unreadable = why_unreadable(text)
        if unreadable is not None:
            raise self._refuse(f"the address of {self._what} cannot be read: {unreadable}")
        backend = self._backend(scheme) if colon else None
        if backend is None:
            first, bare = self.schemes()[0], text and not colon
            meant = f" Did you mean {first}:{text}?" if bare else ""
            raise self._refuse(
                f"{text!r} is not an address of {self._what}.{meant} Known schemes: "
                f"{', '.join(self._listed())}"
            )
        if not place and backend.place:
            raise self._refuse(f"{text!r} does not say where: {scheme}:{backend.place}")
        return backend, Address(scheme, place)

    def name(self, text: str) -> str | None:
        """Return the name of an address's backend, or ``None`` where it has none."""
        scheme, colon, _ = text.partition(":")
        backend = self._backend(scheme) if colon else None
        return None if backend is None else backend.name

    def schemes(self) -> list[str]:
        """Return the schemes that can be used, ours first."""
        ours = [x for x, built_in in self._built_in.items() if built_in.listed]
        return [*ours, *sorted({x.name for x in self._others()} - self._built_in.keys())]

    def _listed(self) -> Iterator[str]:
        for scheme in self.schemes():
            ours = self._built_in.get(scheme)
            if ours is None or ours.installed:
                yield f"{scheme}:…"
            else:
                yield f"{scheme}:… (after pip install 'changefeed-host[{ours.extra}]')"

    def _backend(self, scheme: str) -> BackendT | None:
        ours = self._built_in.get(scheme)
        if ours is not None:
            return self._of_ours(scheme, ours)
        found = {x.value: x for x in self._others() if x.name == scheme}
        if len(found) > 1:
            owners = " and ".join(sorted(_package(x) for x in found.values()))
            raise self._refuse(
                f"{scheme}: is an address of {self._what} in {owners}: uninstall all but one"
            )
        return next((self._of_others(x) for x in found.values()), None)

    def _of_ours(self, scheme: str, ours: BuiltIn) -> BackendT:
        module, _, attribute = ours.target.partition(":")
        try:
            return self._checked(getattr(import_module(module), attribute), ours.target)
        except ModuleNotFoundError as error:
            if ours.installed:
                raise
            raise self._refuse(
                f"{scheme}: needs the package {ours.package}: "
                f"pip install 'changefeed-host[{ours.extra}]'"
            ) from error

    def _of_others(self, found: EntryPoint) -> BackendT:
        target_of(found, self._refuse)
        try:
            loaded = found.load()
        except Exception as error:
            raise self._refuse(
                f"{found.name}: comes from {_package(found)}, and {found.value} cannot be "
                f"imported: {type(error).__name__}: {error}"
            ) from error
        return self._checked(loaded, f"{found.value} (of {_package(found)})")

    def _checked(self, loaded: Any, where: str) -> BackendT:
        if not isinstance(loaded, self._kind):
            raise self._refuse(f"{where} is no {self._kind.__name__}, but {loaded!r:.60}")
        return loaded

    def _others(self) -> list[EntryPoint]:
        return list(entry_points(group=self._group))


def why_unreadable(address: str) -> str | None:
    """Return what no client of anything could read in an address, for people; else ``None``.

    It repeats nothing of the address, which may hold a secret.
    """
    place = address.partition(":")[2]
    if "\0" in address:
        return "it has a NUL in it"
    try:
        if not place.startswith("//"):
            os.fsencode(place)  # names of files may have bytes that are no text
            return None
        address.encode()
        servers = urlsplit(address).netloc.rpartition("@")[2]
    except UnicodeEncodeError:
        return "it has bytes that are not text"
    except ValueError as error:
        return f"{error}; a server in brackets is an IPv6 address, as [::1]"
    return next((text for x in servers.split(",") if (text := _why_no_name(x))), None)


def _why_no_name(server: str) -> str | None:
    """Return why no server can have this name; one with ``%XX`` may be the path of a socket."""
    name = server.partition(":")[0]
    if server.startswith("[") or "%" in name:
        return None
    try:
        name.encode("idna")
    except UnicodeError:
        return "no server has such a name: each part between dots has 1 to 63 characters"
    return None


def target_of(
    found: EntryPoint, refuse: Callable[[str], Exception] = UserError
) -> tuple[str, str]:
    """Return the module and the attribute that an entry point names, or refuse it."""
    parts = EntryPoint.pattern.match(found.value)
    if parts is None or not parts["attr"]:
        raise refuse(
            f"{_package(found)} declares {found.name!r} as {found.value!r}, which is not of "
            "the form 'package.module:NAME': correct the entry point and install it again"
        )
    return parts["module"], parts["attr"]


def _package(found: EntryPoint) -> str:
    return "an installed package" if found.dist is None else found.dist.name


def own_settings(backend: Backend, sections: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return the settings of a backend: an instance of its model, or ``None``.

    Raise ``UserError``, which names each setting that is wrong.
    """
    given = sections.get(backend.name, {})
    if backend.settings is None:
        if given:
            raise UserError(f"backends.{backend.name}: this backend has no settings")
        return None
    from pydantic import ValidationError  # noqa: PLC0415 - where there are models, it is here

    try:
        return backend.settings.model_validate(given)
    except ValidationError as error:
        unknown = f"there is no such setting. Known: {', '.join(backend.settings.model_fields)}"
        lines = (
            f"backends.{'.'.join(map(str, (backend.name, *x['loc'])))}: "
            f"{unknown if x['type'] == 'extra_forbidden' else x['msg']}"
            for x in error.errors()
        )
        raise UserError("\n  ".join(["wrong settings", *lines])) from None
