"""The port of a server, which is taken before there is anything that answers at it."""

import errno
import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

from changefeed.runtime.errors import UserError

BACKLOG: Final = 16
"""How many clients may wait, connected, until the server accepts them."""


def take_port(bind: str, port: int, backlog: int = BACKLOG) -> socket.socket:
    """Listen at an address, with 0 on any free port. Raise ``UserError`` if it cannot be had.

    From then on clients may connect: up to ``backlog`` of them wait until somebody answers.
    """
    try:
        return _listening(bind, port, backlog)
    except (OSError, ValueError) as error:  # it is no text, or longer than names are
        why = error.strerror if isinstance(error, OSError) else "no machine has such a name"
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            why = "another program has it"
        raise UserError(
            f"cannot listen at port {port} of {bind}: {why}. Choose another (web.bind, "
            f"web.port), or 0 for any that is free"
        ) from error


def _listening(bind: str, port: int, backlog: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(backlog)
    except OSError:
        listening.close()
        raise
    return listening


def host_and_port(host: str, port: int) -> str:
    """Return both as an address has them: IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_of(
    listening: socket.socket, machine: Callable[[], str] = socket.gethostname
) -> str:
    """Return ``HOST:PORT`` where others find it; by what ``machine`` returns, the machine's
    name unless said otherwise, if it listens on all addresses.
    """
    host, port = listening.getsockname()[:2]
    everywhere = ip_address(host).is_unspecified
    return host_and_port(machine() if everywhere else host, port)


def machine_address() -> str:
    """Return the address of this machine's name: a pod of Kubernetes cannot look up the names
    of others. Return the name where its address leads others nowhere.
    """
    name = socket.gethostname()
    try:
        found = str(socket.getaddrinfo(name, None)[0][4][0])
    except (OSError, UnicodeError):
        return name
    return name if ip_address(found).is_loopback else found
