"""Where records are kept: one contract (``stores.store``), and a file or folder for each store.

A store knows nothing of leases. Leases, checkpoints, members and dead letters are made of its
records above (``changefeed.leases.container``, ``changefeed.observers.dead_letters``).
"""
