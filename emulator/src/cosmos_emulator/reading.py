"""The bytes of a body that is no text, read from front to back."""

import struct
from typing import Any

from cosmos_emulator.errors import CosmosError, bad_request


class Bytes:
    """What of a body is still to be read, from byte ``at`` on; 400 where it is not ``form``."""

    def __init__(self, whole: bytes, *, form: str, at: int = 0) -> None:
        self.at = at
        self._whole = whole
        self._form = form

    def __bool__(self) -> bool:
        return self.at < len(self._whole)

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self._whole):
            raise self.wrong(f"{end - len(self._whole)} bytes are missing")
        found = self._whole[self.at : end]
        self.at = end
        return found

    def unpack(self, shape: struct.Struct) -> tuple[Any, ...]:
        return shape.unpack(self.take(shape.size))

    def text(self, size: int) -> str:
        try:
            return self.take(size).decode()
        except UnicodeDecodeError as error:
            raise self.wrong(f"a text is not UTF-8 ({error})") from error

    def wrong(self, what: str) -> CosmosError:
        return bad_request(f"{self._form}: at byte {self.at}, {what}.")
