"""Text of others on any terminal: what could move its cursor, or turn a line, is a space."""


def printable(text: str, keep: str = "") -> str:
    """Replace what is not printable, but the characters to keep, by spaces."""
    if text.isprintable():
        return text
    return "".join(x if x.isprintable() or x in keep else " " for x in _escaped(text))


def one_line(text: str, longest: int = 300) -> str:
    """Return a text in one line, cut if it is longer."""
    begin = text[: 10 * longest]  # to look at each of millions would hold up the renewals
    line = " ".join(printable(begin).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _escaped(text: str) -> str:
    """Show bytes of a path that are no text as what they are."""
    return text.encode(errors="backslashreplace").decode()
