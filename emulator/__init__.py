"""A local Cosmos DB endpoint, for development and for tests."""

from .server import create_app, serve
from .settings import DEVELOPMENT_KEY, EmulatorSettings
from .store import DirectoryInUse

__all__ = ["DEVELOPMENT_KEY", "DirectoryInUse", "EmulatorSettings", "create_app", "serve"]
