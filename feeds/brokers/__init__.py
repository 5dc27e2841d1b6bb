"""The event log as a cluster, as those see it who read and write it: formats and values.

What lies here needs no client of an object store: brokers, their clients and engines that
read the store themselves share it.
"""
