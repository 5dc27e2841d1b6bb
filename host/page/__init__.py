"""The page that hosts and ``changefeed monitor`` serve at ``/``."""
