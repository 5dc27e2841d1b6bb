"""A store that takes connections and never says a word."""

import socket
import threading
from contextlib import suppress
from typing import Self


class Silent:
    """Listens until the block is left; ``port`` is where."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._taken: list[socket.socket] = []
        self.port: int = self._listening.getsockname()[1]
        self.asked = threading.Event()
        """Set once somebody has connected."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._take, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        for one in (self._listening, *self._taken):
            one.close()

    def _take(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                self._taken.append(self._listening.accept()[0])
                self.asked.set()
