"""What each command is called, its flags and its help.

A module here imports what declares flags, and no library: ``--help`` of all commands takes a
moment. A command imports the module that does its work when it is called.
"""
