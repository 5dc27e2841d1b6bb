"""Azure Cosmos DB for NoSQL on this machine, for development and for tests."""

from cosmos_emulator.server import create_app, serve
from cosmos_emulator.settings import DEVELOPMENT_KEY, EmulatorSettings
from cosmos_emulator.store import DirectoryInUse

__version__ = "0.1.0"
__all__ = ["DEVELOPMENT_KEY", "DirectoryInUse", "EmulatorSettings", "create_app", "serve"]
