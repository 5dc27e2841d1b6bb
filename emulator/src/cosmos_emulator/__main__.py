"""``python -m cosmos_emulator`` is the command ``cosmos-emulator``."""

from cosmos_emulator.command import main

main()
