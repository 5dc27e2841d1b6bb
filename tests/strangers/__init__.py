"""Others beside our hosts: Java's processor, KEDA's scaler, a package of a third party.

Those over Cosmos DB run against the emulator or an account: see ``emulator/tests/clients``.
"""
