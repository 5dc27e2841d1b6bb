"""Names that nothing else has."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

from changefeed.runtime.unique_names import unique_name


def some(_: int) -> set[str]:
    return {unique_name() for _ in range(10_000)}


def test_no_thread_and_no_forked_process_has_a_name_of_another() -> None:
    with ProcessPoolExecutor(2, get_context("fork")) as forked, ThreadPoolExecutor(4) as beside:
        found = set.union(some(0), *forked.map(some, range(4)), *beside.map(some, range(4)))
    assert (len(found), {len(x) for x in found}) == (90_000, {32})
