"""Text of others on any terminal: what could move its cursor, or turn a line, is a space."""


def printable(text: str, keep: str = "") -> str:
    """Replace what is not printable, but the characters to keep, by spaces."""
    if text.isprintable():
        return text
    return "".join(x if x.isprintable() or x in keep else " " for x in _escaped(text))


def _escaped(text: str) -> str:
    """Show bytes of a path that are no text as what they are."""
    return text.encode(errors="backslashreplace").decode()
