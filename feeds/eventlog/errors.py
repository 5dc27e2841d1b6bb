"""What is wrong with a log. Its readers are told of the ranges that it concerns."""


class Damaged(Exception):
    """Bytes of a log are missing, or are not those that were written. The text says why.

    For readers it becomes ``RangeDamaged``.
    """
