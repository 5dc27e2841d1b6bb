"""An observer that imports next to nothing: the time until it is called is the host's."""

from pathlib import Path


class First:
    """An observer that says by the file ``path`` that it was given changes."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    async def process(self, _: object) -> None:
        self._path.touch()
