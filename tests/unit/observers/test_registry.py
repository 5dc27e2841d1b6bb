import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from changefeed.feeds.feed import Change
from changefeed.observers import registry
from changefeed.observers.errors import ObserverRefused
from changefeed.observers.observer import Observer
from changefeed.observers.registry import load_observer, observer
from tests.support.observing import RememberingContext, change

SHOP = """
seen = []

class Orders:
    def __init__(self, table="orders"):
        self.table = table

    async def process(self, changes):
        seen.append((self.table, len(changes)))

class nested:
    Inner = Orders

async def save(changes):
    seen.append(("save", len(changes)))
"""


UNPRINTABLE = """
class Mute(BaseException):
    def __str__(self):
        raise ValueError
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty directory, and leave no module, path or name behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    monkeypatch.setattr(registry, "_registered", {})
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def refusal(name: str, options: dict[str, object] | None = None) -> str:
    with pytest.raises(ObserverRefused) as refused:
        load_observer(name, options)
    return str(refused.value)


async def use(made: Observer) -> None:
    context = RememberingContext()
    await made.open(context)
    await made.process(context, [change(1), change(2)])


async def test_a_class_in_the_current_directory_is_found_and_gets_its_options(
    here: Path,
) -> None:
    write(here, "shop.py", SHOP)
    await use(load_observer("shop:Orders", {"table": "late"})())
    assert sys.modules["shop"].seen == [("late", 2)]


@pytest.mark.parametrize("name", ["shop:nested.Inner", "shop:save"])
async def test_nested_attributes_and_functions_are_found(here: Path, name: str) -> None:
    write(here, "shop.py", SHOP)
    await use(load_observer(name)())
    assert len(sys.modules["shop"].seen) == 1


async def test_a_module_in_a_package_is_found(here: Path) -> None:
    write(here, "company/shop.py", SHOP)
    await use(load_observer("company.shop:Orders")())
    assert sys.modules["company.shop"].seen == [("orders", 2)]


def test_the_current_directory_cannot_hide_the_standard_library(here: Path) -> None:
    sys.modules.pop("colorsys", None)
    write(here, "colorsys.py", SHOP)
    said = refusal("colorsys:Orders")
    assert "has no 'Orders'" in said
    assert "(./colorsys.py is hidden by " in said
    assert said.endswith("colorsys.py; rename yours)")


def test_a_name_that_a_module_lacks_comes_with_the_nearest_one(here: Path) -> None:
    write(here, "shop.py", SHOP)
    assert refusal("shop:Order") == (
        f"module 'shop' ({here}/shop.py) has no 'Order'; did you mean 'Orders'?"
    )


def test_a_module_that_is_not_there_is_named_with_where_we_looked(here: Path) -> None:
    said = refusal("shoop.late:Orders")
    assert said.startswith(f"there is no module 'shoop'; looked in {here} and on the path of ")


@pytest.mark.parametrize(
    "name", ["shop:", ":Orders", "shop:Orders()", "./shop.py:Orders", "a:b:c"]
)
def test_what_is_not_a_module_and_an_attribute_is_said_to_be_so(name: str) -> None:
    assert refusal(name) == f"{name!r} is not of the form 'package.module:Class'"


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("import os\n\n1 / 0\n", 3, "ZeroDivisionError: division by zero"),
        ("\nimport not_installed\n", 2, "ModuleNotFoundError: No module named 'not_installed'"),
        ("def f(:\n", 1, "SyntaxError: invalid syntax"),
        ("import sys\nsys.exit(3)\n", 2, "SystemExit: 3"),
        ("import asyncio\nraise asyncio.CancelledError\n", 2, "CancelledError"),
        ("class Panic(BaseException): ...\nraise Panic('index')\n", 2, "Panic: index"),
        (f"{UNPRINTABLE}raise Mute\n", 5, "Mute: (its text cannot be had: ValueError)"),
        ("raise ValueError('no such town: \\ud800')", 1, "ValueError: no such town: \\ud800"),
    ],
)
def test_a_module_that_cannot_be_imported_is_shown_with_its_line_and_error(
    here: Path, text: str, line: int, what: str
) -> None:
    write(here, "shop.py", text)
    with pytest.raises(ObserverRefused) as refused:
        load_observer("shop:Orders")
    assert str(refused.value).startswith(
        f"importing 'shop' failed at {here}/shop.py, line {line}: {what}"
    )
    assert type(refused.value.__cause__).__name__ == what.partition(":")[0]


def test_what_a_package_raises_refuses_the_module_in_it(here: Path) -> None:
    write(here, "shop/__init__.py", "class Panic(BaseException): ...\nraise Panic\n")
    write(here, "shop/orders.py", SHOP)
    where = f"failed at {here}/shop/__init__.py, line 2: Panic"
    assert refusal("shop.orders:Orders") == f"importing 'shop.orders' {where}"
    assert refusal("shop.orders") == f"importing 'shop.orders' {where}"


def test_what_a_module_raises_that_is_asked_for_a_name_refuses_the_observer(
    here: Path,
) -> None:
    write(here, "shop.py", "def __getattr__(name):\n    raise ImportError('no C library')\n")
    assert refusal("shop:Orders") == (
        f"importing 'shop:Orders' failed at {here}/shop.py, line 2: ImportError: no C library"
    )


@pytest.mark.parametrize("name", ["shop:Orders", "shop"])
def test_ctrl_c_while_a_module_is_imported_is_ctrl_c(here: Path, name: str) -> None:
    write(here, "shop.py", "raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load_observer(name)


async def test_a_registered_name_is_found() -> None:
    seen: list[int] = []

    @observer("orders")
    async def save(changes: Sequence[Change]) -> None:
        seen.append(len(changes))

    await use(load_observer("orders")())
    assert seen == [2]


async def test_the_bare_decorator_takes_the_target_s_own_name() -> None:
    seen: list[int] = []

    @observer
    class Orders:
        async def process(self, changes: Sequence[Change]) -> None:
            seen.append(len(changes))

    await use(load_observer("Orders")())
    assert seen == [2]


def test_two_observers_of_one_name_are_refused() -> None:
    @observer("orders")
    async def one(changes: Sequence[Change]) -> None: ...

    async def two(changes: Sequence[Change]) -> None: ...

    with pytest.raises(
        ObserverRefused, match=r"two observers are registered as 'orders': .*one and .*two"
    ):
        observer("orders")(two)


def test_a_module_that_is_loaded_again_registers_its_observers_again(here: Path) -> None:
    write(
        here,
        "shop.py",
        "from changefeed.observers.registry import observer\n"
        "@observer\n"
        "async def save(changes): ...\n",
    )
    load_observer("shop:save")
    del sys.modules["shop"]
    load_observer("shop:save")
    load_observer("save")


@pytest.mark.parametrize("name", ["", "shop:orders"])
def test_a_name_that_could_not_be_found_again_is_refused(name: str) -> None:
    async def save(changes: Sequence[Change]) -> None: ...

    with pytest.raises(ObserverRefused, match="give a word without a colon"):
        observer(name)(save)


@pytest.mark.parametrize("name", ["log", "jsonl", "count"])
def test_the_ready_made_observers_are_installed_under_their_names(name: str) -> None:
    load_observer(name)


async def test_a_user_s_own_name_goes_before_an_installed_one() -> None:
    seen: list[int] = []

    @observer("log")
    async def log(changes: Sequence[Change]) -> None:
        seen.append(len(changes))

    await use(load_observer("log")())
    assert seen == [2]


def test_an_unknown_name_comes_with_the_known_ones_and_the_nearest() -> None:
    @observer("orders")
    async def save(changes: Sequence[Change]) -> None: ...

    assert refusal("order") == (
        "there is no observer 'order'; did you mean 'orders'? Known are: count, jsonl, log, "
        "orders. Your own is named as 'module:Class'. A name given by @observer is known "
        "once its module is imported: name that module, if it registers one observer"
    )
    assert refusal("zzz").startswith("there is no observer 'zzz'. Known are: count, jsonl, ")


def test_an_installed_name_that_stands_for_two_things_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def installed(**_: str) -> EntryPoints:
        return EntryPoints(
            EntryPoint(name="x", value=value, group=registry.GROUP)
            for value in ("a:One", "b:Two", "a:One")
        )

    monkeypatch.setattr(registry, "entry_points", installed)
    assert refusal("x") == (
        "several installed packages have an observer 'x'; name one in full: a:One, b:Two"
    )


def test_options_for_a_ready_made_observer_are_checked_at_once() -> None:
    assert refusal("jsonl", {"pth": "x"}).startswith(
        "JsonLinesObserver cannot be made of these options: got an unexpected keyword argument"
    )


REGISTERED = """
from changefeed.observers.registry import observer

@observer("late-orders")
async def save(changes):
    seen.append(len(changes))

seen = []
"""


async def test_a_module_that_registers_one_observer_names_it(here: Path) -> None:
    write(here, "company/orders.py", REGISTERED)
    await use(load_observer("company.orders")())
    assert sys.modules["company.orders"].seen == [2]
    await use(load_observer("late-orders")())


def test_a_module_without_one_registered_observer_is_refused_with_what_it_has(
    here: Path,
) -> None:
    write(here, "none.py", "x = 1\n")
    write(
        here, "two.py", REGISTERED + REGISTERED.replace("late-", "early-").replace("save", "b")
    )
    assert refusal("none") == (
        f"module 'none' ({here}/none.py) should register one observer with @observer, and "
        f"registers none; name one as 'none:Class'"
    )
    assert "and registers 2 (early-orders, late-orders); name one as" in refusal("two")


TYPED = """
import functools
from pathlib import Path
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from nowhere import Unknown

class Own: ...

class Typed:
    def __init__(self, *, every: int = 1, path: Path = Path(), rate: float = 1.0,
                 names: list[str] = [], table: str = "", own: Own = Own(), **rest: int): ...
    async def process(self, changes): ...

class Unresolved:
    def __init__(self, *, every: "Unknown" = 1, many: "list[int]" = [],
                 own: list["Unknown"] = [], at: "Path.nowhere" = 1, rate: "float" = 1.0): ...
    async def process(self, changes): ...

class Inherits(Unresolved): ...

made = functools.partial(Unresolved, every=2)
"""


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"every": "many"}, "every: int, and every='many' should be a valid integer"),
        ({"every": "5"}, "every: int, and every='5' should be a valid integer"),
        ({"rate": "fast"}, "rate: float, and rate='fast' should be a valid number"),
        ({"names": [1]}, "names: list[str], and names=[1] should be a valid string"),
        ({"table": 5}, "table=5 should be a valid string, or write it in quotes"),
    ],
)
def test_an_option_of_a_wrong_type_is_refused_by_the_observers_annotations(
    here: Path, options: dict[str, object], wrong: str
) -> None:
    write(here, "typed.py", TYPED)
    assert wrong in refusal("typed:Typed", options)


@pytest.mark.parametrize("name", ["Unresolved", "Inherits", "made"])
def test_an_annotation_that_cannot_be_resolved_leaves_the_others_to_be_checked(
    here: Path, name: str
) -> None:
    write(here, "typed.py", TYPED)
    wrong = refusal(f"typed:{name}", {"every": "any", "rate": "fast"})
    assert "rate: float, and rate='fast' should be a valid number" in wrong
    wrong = refusal(f"typed:{name}", {"own": "any", "many": ["x"]})
    assert "many: list[int], and many=['x'] should be a valid integer" in wrong


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (
            "Typed",
            {"every": 5, "path": "a/b", "rate": 2, "names": ["x"], "own": "any", "more": "x"},
        ),
        ("Unresolved", {"every": "many", "own": [1], "at": "x", "many": [1], "rate": 2}),
    ],
)
def test_options_that_fit_or_cannot_be_checked_are_taken(
    here: Path, name: str, options: dict[str, object]
) -> None:
    write(here, "typed.py", TYPED)
    load_observer(f"typed:{name}", options)
