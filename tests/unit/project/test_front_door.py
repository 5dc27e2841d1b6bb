"""``changefeed`` itself: what it promises is there, typed, documented, and cheap to import."""

import ast
import inspect
import pydoc
import time
from pathlib import Path

import pytest

import changefeed
from tests.support.processes import python

SOURCE = ast.parse(Path(changefeed.__file__).read_text("utf-8"))


def imported_for_types() -> dict[str, str]:
    (block,) = (
        x for x in SOURCE.body if isinstance(x, ast.If) and "TYPE_CHECKING" in ast.dump(x.test)
    )
    return {
        name.name: (x.module or "").removeprefix("changefeed.")
        for x in block.body
        if isinstance(x, ast.ImportFrom)
        for name in x.names
    }


def test_what_types_see_is_what_is_imported() -> None:
    assert imported_for_types() == changefeed._MODULES
    assert sorted(changefeed.__all__) == sorted(changefeed._MODULES)


def test_every_promised_name_is_there() -> None:
    for name in changefeed.__all__:
        assert getattr(changefeed, name) is not None
    assert set(changefeed.__all__) <= set(dir(changefeed))
    with pytest.raises(AttributeError, match="module 'changefeed' has no attribute 'nonsense'"):
        changefeed.nonsense  # noqa: B018 - the attribute error is the point


def test_every_promised_class_and_function_says_what_to_rely_on() -> None:
    for name in changefeed.__all__:
        found = getattr(changefeed, name)
        if inspect.isclass(found):
            assert (vars(found).get("__doc__") or "").strip(), name
        elif inspect.isfunction(found):
            assert (found.__doc__ or "").strip(), name


def test_help_reads_as_a_page() -> None:
    page = pydoc.plain(pydoc.render_doc(changefeed))
    assert "hosts share the ranges of a feed through leases" in page
    assert "class Host(" in page
    assert "open_host(" in page


def test_importing_it_loads_nothing_and_a_name_loads_only_what_it_needs() -> None:
    code = (
        "import sys, changefeed\n"
        "assert not [x for x in sys.modules if x.startswith('changefeed.')]\n"
        "changefeed.Change\n"
        "assert 'changefeed.host' not in sys.modules and 'aiohttp' not in sys.modules\n"
        "from changefeed import *\n"
        "open_host\n"
    )
    began = time.perf_counter()
    python(code)
    assert time.perf_counter() - began < 30
