"""What ``changefeed pipeline …`` does. Spark is imported once the settings are known to be
right, by the commands that need it.
"""
