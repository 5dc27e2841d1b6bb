"""The page that hosts and ``changefeed dashboard`` serve at ``/``."""
