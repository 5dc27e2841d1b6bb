"""The event log as a cluster, as those see it who read and write it: formats and values,
and how a store is read.

Brokers, their clients and engines that read the store themselves share it. Only
``stores.remote_store`` needs the client of object stores, and is imported when it is needed.
"""
