"""Search by meaning: ``python -m samples.vectors.search data/vectors.db 'what to cook'``."""

import asyncio
import sys
from pathlib import Path

from samples.vectors.models import LocalModel
from samples.vectors.store import VectorStore


async def search(database: Path, words: str, count: int = 3) -> list[tuple[float, str, str]]:
    (vector,) = await LocalModel().embed([words])
    return VectorStore(database).nearest(vector, count)


def main() -> None:
    for similarity, item, text in asyncio.run(search(Path(sys.argv[1]), sys.argv[2])):
        print(f"{similarity:.2f}  {item}  {text[:70]}")


if __name__ == "__main__":
    main()
