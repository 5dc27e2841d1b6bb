"""A local Cosmos DB endpoint, for development and for tests."""

from changefeed.emulator.server import create_app, serve
from changefeed.emulator.settings import DEVELOPMENT_KEY, EmulatorSettings
from changefeed.emulator.store import DirectoryInUse

__all__ = ["DEVELOPMENT_KEY", "DirectoryInUse", "EmulatorSettings", "create_app", "serve"]
