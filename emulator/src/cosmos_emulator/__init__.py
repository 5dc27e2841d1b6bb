"""Azure Cosmos DB for NoSQL on this machine, for development and for tests."""

from typing import TYPE_CHECKING, Any

from cosmos_emulator.settings import DEVELOPMENT_KEY, EmulatorSettings
from cosmos_emulator.store import DirectoryInUse

if TYPE_CHECKING:
    from cosmos_emulator.server import create_app, serve

__version__ = "0.1.0"
__all__ = ["DEVELOPMENT_KEY", "DirectoryInUse", "EmulatorSettings", "create_app", "serve"]


def __getattr__(name: str) -> Any:
    """Import the server when it is first used: the help of the command needs none."""
    if name not in ("create_app", "serve"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cosmos_emulator import server  # noqa: PLC0415 - see above

    return getattr(server, name)
