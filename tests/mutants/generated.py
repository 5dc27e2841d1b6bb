"""Small breaks made by rule, as the tools of the field make them: of any function, on demand.

Each is one edit of a syntax tree: a comparison moved by one, a condition forced, a statement
left out. The edited module is compiled, and the functions that differ get their new code
where they live; imports, classes and objects stay as they are.

Limits: nothing at the level of a module or a class is edited, since that has run already.
Nor is what no test should look at: texts of logs and errors, annotations, assertions.
"""

import ast
import gc
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from random import Random
from types import CodeType, FunctionType
from typing import Any

_PAIRS: Sequence[tuple[type[ast.AST], type[ast.AST]]] = (
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.And, ast.Or),
    (ast.Add, ast.Sub),
    (ast.Mult, ast.Div),
    (ast.Break, ast.Continue),
)
_OTHERS = dict(_PAIRS) | {b: a for a, b in _PAIRS}
_AT_IMPORT = {"annotation", "returns", "decorator_list", "defaults", "kw_defaults"}
_LOGS = {"debug", "info", "warning", "error", "exception", "log"}


@dataclass(frozen=True, slots=True)
class Function:
    """Where a function stands: its file with all links followed, its name and first line."""

    file: str
    name: str
    line: int

    @classmethod
    def of(cls, code: CodeType) -> "Function":
        """Return where a compiled function stands."""
        return cls(os.path.realpath(code.co_filename), code.co_qualname, code.co_firstlineno)


@dataclass(frozen=True, slots=True)
class Edit:
    """The ``number``-th edit of a file."""

    path: Path
    number: int
    line: int
    what: str

    def __str__(self) -> str:
        return f"{os.path.relpath(self.path)}:{self.line}: {self.what}"

    @property
    def module(self) -> str:
        """Its import name: the folders at the top are below ``changefeed``."""
        name = ".".join(self.path.with_suffix("").parts).removesuffix(".__init__")
        return name if name.startswith("changefeed") else f"changefeed.{name}"

    def code(self) -> CodeType:
        """Return the edited module."""
        tree = ast.parse(self.path.read_text())
        next(islice(_changes(tree), self.number, None)).make()
        return compile(ast.fix_missing_locations(tree), str(self.path), "exec")

    def functions(self) -> set[Function]:
        """Return the functions that it changes, the innermost ones."""
        return changed(compile(self.path.read_text(), str(self.path), "exec"), self.code())


def edits(path: Path) -> list[Edit]:
    """Return all edits of a file, in the order of its text."""
    changes = _changes(ast.parse(path.read_text()))
    return [Edit(path, n, change.line, str(change)) for n, change in enumerate(changes)]


def drawn(paths: Iterable[Path], count: int, seed: int) -> list[Edit]:
    """Draw edits, from one top-level folder after the other."""
    random = Random(seed)
    by_package = defaultdict[str, list[Edit]](list)
    for path in sorted(paths):
        by_package[path.parts[0]] += edits(path)
    shuffled = [random.sample(x, len(x)) for x in by_package.values()]
    in_turn = chain.from_iterable(zip_longest(*shuffled))
    real = (x for x in in_turn if x is not None and x.functions())
    return [x for x, _ in zip(real, range(count), strict=False)]


def changed(whole: CodeType, edited: CodeType) -> set[Function]:
    """Return the innermost functions of a module that are others in an edited one."""
    before, after = _functions(whole), _functions(edited)
    others = {x: code for x, code in before.items() if after.get(x) != code}
    return {x for x, code in others.items() if not others.keys() & _functions(code).keys()}


def put_into_place(module: CodeType) -> int:
    """Give the live functions of a module the code of ``module``; return how many changed."""
    gc.unfreeze()  # what is frozen is not found
    new, count = _functions(module), 0
    names = {x.name for x in new}
    for live in [x for x in gc.get_objects() if isinstance(x, FunctionType)]:
        old = live.__code__
        if old.co_qualname in names and new.get(Function.of(old), old) != old:
            with suppress(ValueError):  # a closure, with fewer variables of its function
                live.__code__ = new[Function.of(old)]
                count += 1
    return count


def _functions(code: CodeType) -> dict[Function, CodeType]:
    found = dict[Function, CodeType]()
    for inside in code.co_consts:
        if isinstance(inside, CodeType):
            found |= {Function.of(inside): inside} | _functions(inside)
    return found


@dataclass(frozen=True, slots=True)
class _Change:
    """One node in the place of another, which a field of its parent has."""

    parent: ast.AST
    field: str
    index: int | None
    new: ast.AST

    @property
    def old(self) -> Any:
        value = getattr(self.parent, self.field)
        return value if self.index is None else value[self.index]

    @property
    def line(self) -> int:
        return int(self.old.lineno)

    def __str__(self) -> str:
        old, new = (ast.unparse(x).partition("\n")[0][:70] for x in (self.old, self.new))
        return f"{old} -> {new}"

    def make(self) -> None:
        new = ast.copy_location(self.new, self.old)
        if self.index is None:
            setattr(self.parent, self.field, new)
        else:
            getattr(self.parent, self.field)[self.index] = new


def _changes(tree: ast.AST) -> Iterator[_Change]:
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef(name="__repr__" | "__str__"):
                continue
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _changes_inside(node)
            case ast.ClassDef():
                yield from _changes(node)


def _changes_inside(parent: ast.AST) -> Iterator[_Change]:
    for field, value in ast.iter_fields(parent):
        nodes = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, node in () if field in _AT_IMPORT else nodes:
            if not isinstance(node, ast.AST) or isinstance(node, ast.Assert | ast.JoinedStr):
                continue
            if _is_log(node):
                continue
            for new in _instead(node):
                yield _Change(parent, field, index, new)
            if not isinstance(node, ast.Raise):
                yield from _changes_inside(node)


def _is_log(node: ast.AST) -> bool:
    match node:
        case ast.Expr(ast.Call(ast.Attribute(attr=name))):
            return name in _LOGS
    return False


def _instead(node: ast.AST) -> Iterator[ast.AST]:
    """Say what may stand in the place of a node."""
    if isinstance(node, ast.stmt):
        yield from _instead_of_statement(node)
    elif isinstance(node, ast.expr):
        yield from _instead_of_expression(node)


def _instead_of_statement(node: ast.stmt) -> Iterator[ast.AST]:
    match node:
        case ast.Expr(ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise():
            yield ast.Pass()
        case ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Return(ast.expr() as value) if not _is_none(value):
            yield ast.Return(ast.Constant(None))
        case ast.If(_, body, orelse):
            yield ast.If(ast.Constant(True), body, orelse)
            yield ast.If(ast.Constant(False), body, orelse)
        case ast.While(_, body, orelse):
            yield ast.While(ast.Constant(False), body, orelse)
        case ast.Break() | ast.Continue():
            yield _other(node)


def _instead_of_expression(node: ast.expr) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(left, [operator], compared):
            yield ast.Compare(left, [_other(operator)], compared)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(_other(operator), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.BinOp(left, operator, right) if type(operator) in _OTHERS:
            if not _is_text(left) and not _is_text(right):
                yield ast.BinOp(left, _other(operator), right)
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.IfExp(_, body, orelse):
            yield body
            yield orelse


def _other(node: ast.AST) -> Any:
    return _OTHERS[type(node)]()


def _is_text(node: ast.expr) -> bool:
    text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return text or isinstance(node, ast.JoinedStr)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
