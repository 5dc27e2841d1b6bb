"""Ports for processes of tests that have to be known before, or to stay the same.

Not from where the system takes those of outgoing connections, nor those that a bind to port 0
gets: such a port may have gone to a test beside this one before it is used.
"""

import socket
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom

_SYSTEM = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 20_000
_random = SystemRandom()


def free_port() -> int:
    return free_ports(1)


def free_ports(count: int) -> int:
    """Return the first of so many ports that follow each other, and that nobody has."""
    for _ in range(1000):
        first = _random.randrange(_LOWEST, _systems_first() - count)
        if _are_free(range(first, first + count)):
            return first
    raise OSError(f"no {count} ports in a row are free")


def _systems_first() -> int:
    try:
        return int(_SYSTEM.read_text().split()[0])
    except FileNotFoundError:
        return 32_768


def _are_free(ports: range) -> bool:
    with ExitStack() as stack:
        for port in ports:
            probe = stack.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
