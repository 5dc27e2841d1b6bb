"""``python -m changefeed``, which is the command ``changefeed``."""

from changefeed.cli import main

main()
