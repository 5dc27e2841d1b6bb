"""Whether this process, or the machine, has run out of file handles."""

import errno
import os

_NONE_LEFT = frozenset({errno.EMFILE, errno.ENFILE})


def none_left(error: OSError) -> bool:
    """Whether this is what the system says where it has no more file handles."""
    return error.errno in _NONE_LEFT


def out_of_handles() -> bool:
    """Return whether no file can be opened now: for errors that do not say why."""
    try:
        handle = os.open(os.devnull, os.O_RDONLY)
    except OSError as error:
        return none_left(error)
    os.close(handle)
    return False
