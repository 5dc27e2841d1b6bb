"""What Python's garbage collector is asked to leave alone."""

import gc


def freeze_startup_objects() -> None:
    """Spare the garbage collector what modules and settings have made for good.

    A full collection walks over all of it and stops every thread for that long: with what we
    import some 70 ms, each time that something like a scrape makes many objects.
    """
    gc.collect()
    gc.freeze()
