"""Reads a query. FROM is read before the projection, which uses the names it gives.

What Cosmos DB understands and this does not is refused by name, with what may be said
instead.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Final

from cosmos_emulator.errors import bad_request
from cosmos_emulator.query.budget import Budget
from cosmos_emulator.query.cursor import is_plain_name, refused
from cosmos_emulator.query.expressions import Expressions
from cosmos_emulator.query.syntax import (
    ROOT,
    Call,
    Column,
    Component,
    Expression,
    Order,
    Property,
    Rank,
    Select,
    Source,
    Subquery,
    has_aggregate,
    is_of_groups,
)

_COMPONENTS: Final = {"VECTORDISTANCE": (2, 4), "FULLTEXTSCORE": (2, 100)}
"""What ORDER BY RANK takes, and the fewest and most arguments of each."""


def parse(text: str, budget: Budget) -> Select:
    """Return the query that a text says; 400 with advice if it cannot be run here."""
    try:
        return _Parser(text, budget).query()
    except RecursionError:
        raise bad_request("The query is nested too deeply.") from None


def parse_condition(text: str, budget: Budget) -> Select:
    """Read the condition of a patch: ``FROM c WHERE …``."""
    return _Parser(text, budget).condition()


class _Parser(Expressions):
    def __init__(self, text: str, budget: Budget) -> None:
        super().__init__(text, budget)
        self._depth = 0

    def query(self) -> Select:
        self.expect("SELECT")
        found = self.select()
        self.at_end()
        return found

    def condition(self) -> Select:
        found = self._where(self._from(Select()) if self.took("FROM") else Select())
        self.at_end()
        if found.over is not None:
            raise refused("FROM over a subquery, in a condition,")
        return _checked(found)

    def select(self) -> Select:
        around = self.names
        self._depth += 1
        found = self._select()
        self._depth -= 1
        self.names = around
        return _checked(found)

    def _select(self) -> Select:
        start, place = self.place, self.find_in_this_query("FROM")
        head, behind = Select(item=self.names[0]), None
        if place is not None:
            self.go_to(place + 1)
            head, behind = self._from(head), self.place
            head = replace(head, from_text=self.written_since(place))
            self.go_to(start)
        distinct = self.took("DISTINCT")
        top = self.primary() if self.took("TOP") else None
        head = replace(self._projection(head), distinct=distinct)
        if place is not None and behind is not None:
            if self.place != place:
                raise self.unexpected()
            self.go_to(behind)
        found = self._tail(self._where(head))
        if top is None:
            return found
        if found.limit is not None:
            raise bad_request("A query has either TOP or OFFSET … LIMIT, not both.")
        return replace(found, limit=top, has_top=True)

    def _from(self, head: Select) -> Select:
        """Read what FROM names, and its JOINs; what they give can be used afterwards."""
        inner = self._depth > 1
        if self.at_sign("(") and not inner:
            return self._joins(self._over(head), inner=inner)
        first = self._source(joined=False, inner=inner)
        sources: list[Source] = []
        if inner or first.each or first.of != Property(root=ROOT, steps=()):
            sources.append(first)
        item = head.item if inner else (ROOT if sources else first.name)
        self.names = (first.name, *(self.names if inner else ()))
        return self._joins(replace(head, item=item, sources=tuple(sources)), inner=inner)

    def _over(self, head: Select) -> Select:
        """Read ``(SELECT …) AS x`` behind FROM: a query of its own, over the container."""
        depth, self._depth = self._depth, 0
        found = self.primary()
        self._depth = depth
        if not isinstance(found, Subquery):
            raise self.unexpected()
        named = self.took("AS") or is_plain_name(self.peek())
        name = self.name() if named else ROOT
        self.names = (name,)
        return replace(head, item=name, over=found.select)

    def _joins(self, head: Select, *, inner: bool) -> Select:
        sources = list(head.sources)
        while self.took("JOIN"):
            self.count("JOIN")
            source = self._source(joined=True, inner=inner)
            sources.append(source)
            self.names = (*self.names, source.name)
        if self.at_sign(","):
            raise self.unexpected()
        return replace(head, sources=tuple(sources))

    def _source(self, *, joined: bool, inner: bool) -> Source:
        """Read ``c``, ``c AS x``, ``c.a.b AS x``, ``x IN c.xs`` or ``(SELECT …) AS x``."""
        if self.at_sign("("):
            of = self._results()
            self.took("AS")
            return Source(name=self.name(), of=of, each=True)
        name = self.name()
        if self.took("IN"):
            return Source(name=name, of=self._collection(joined or inner), each=True)
        if joined:
            raise self.unexpected()
        of = self._path(name, known=inner)
        named = self.took("AS") or is_plain_name(self.peek())
        last = of.steps[-1] if of.steps else name
        return Source(name=self.name() if named else str(last), of=of, each=False)

    def _collection(self, known: bool) -> Expression:  # noqa: FBT001 - of a private helper
        if self.at_sign("(", "["):
            return self._results()
        return self._path(self.name(), known=known)

    def _results(self) -> Expression:
        """Read a subquery of which each result is a row."""
        found = self.primary()
        return replace(found, kind="ARRAY") if isinstance(found, Subquery) else found

    def _path(self, name: str, *, known: bool) -> Property:
        """Read the path behind a name: one of this query's, or that of the container."""
        if known and name not in self.names:
            raise bad_request(f"Identifier {name!r} could not be resolved.")
        return Property(root=name if known else ROOT, steps=self.steps())

    def _projection(self, head: Select) -> Select:
        if self.took_sign("*"):
            if any(x.each for x in head.sources):
                raise bad_request("'SELECT *' is only valid with a single input set.")
            if head.sources:
                raise refused("SELECT * over a part of the item")
            return head
        if self.took("VALUE"):
            return replace(head, value=self._column("$1"))
        columns: list[Column] = []
        while not columns or self.took_sign(","):
            columns.append(self._column(f"${len(columns) + 1}", named=True))
        return replace(head, columns=tuple(columns))

    def _column(self, default: str, *, named: bool = False) -> Column:
        start = self.place
        expression = self.expression()
        text = self.written_since(start)
        name = _name_of(expression)
        if (named and self.took("AS")) or (named and is_plain_name(self.peek())):
            name = self.advance().text
        return Column(name=name or default, expression=expression, text=text)

    def _where(self, head: Select) -> Select:
        if not self.took("WHERE"):
            return head
        start = self.place
        where = self.expression()
        return replace(head, where=where, where_text=self.written_since(start))

    def _tail(self, head: Select) -> Select:
        group: list[Column] = []
        if self.took("GROUP"):
            self.expect("BY")
            while not group or self.took_sign(","):
                group.append(self._column(f"${len(group) + 1}"))
        found = replace(head, group=tuple(group))
        if self.took("ORDER"):
            self.expect("BY")
            found = self._orders(found)
        if self.took("OFFSET"):
            offset = self.primary()
            self.expect("LIMIT")
            found = replace(found, offset=offset, limit=self.primary())
        return found

    def _orders(self, head: Select) -> Select:
        if self.took("RANK"):
            if self._depth > 1 or head.over is not None:
                raise refused("ORDER BY RANK inside a subquery, or over one,")
            rank = self._rank()
            if self.peek().is_word("ASC") or self.peek().is_word("DESC"):
                raise bad_request(
                    "Specifying a sort order (ASC or DESC) in the ORDER BY RANK clause is not "
                    "allowed."
                )
            return replace(head, rank=rank)
        order: list[Order] = []
        while not order or self.took_sign(","):
            order.append(self._order())
        return replace(head, order=tuple(order))

    def _order(self) -> Order:
        start = self.place
        expression = self.expression()
        text = self.written_since(start)
        if isinstance(expression, Call) and expression.function == "VECTORDISTANCE":
            return self._nearest(expression, text)
        descending = self.took("DESC") or (self.took("ASC") and False)
        return Order(expression=expression, descending=descending, text=text)

    def _nearest(self, distance: Call, text: str) -> Order:
        """Return the order that has the nearest vector first, whatever the distance is."""
        if self.peek().is_word("ASC") or self.peek().is_word("DESC"):
            raise bad_request(
                "Specifying a sorting order (ASC or DESC) with VectorDistance function is not "
                "supported."
            )
        score = replace(distance, function="_VECTORSCORE")
        return Order(
            expression=score, descending=True, text=f"_VectorScore{text[text.index('(') :]}"
        )

    def _rank(self) -> Rank:
        """Read a function that scores, or RRF of two and more, and perhaps weights."""
        if not self.took("RRF"):
            return Rank(components=(self._component(),))
        self.expect_sign("(")
        components: list[Component] = []
        weights = None
        while not components or self.took_sign(","):
            if len(components) > 1 and not self._at_component():
                weights = self.expression()
                break
            components.append(self._component())
        self.expect_sign(")")
        if len(components) == 1:
            raise bad_request("RRF takes two functions that score, or more.")
        return Rank(components=tuple(components), weights=weights)

    def _at_component(self) -> bool:
        return any(self.peek().is_word(x) for x in _COMPONENTS)

    def _component(self) -> Component:
        if not self._at_component():
            raise bad_request(
                "ORDER BY RANK takes VectorDistance, FullTextScore, or RRF of several of them, "
                f"not {self.peek().text!r}."
            )
        function = self.advance().text.upper()
        self.expect_sign("(")
        arguments: list[str] = []
        while not arguments or self.took_sign(","):
            start = self.place
            self.expression()
            arguments.append(self.written_since(start))
        self.expect_sign(")")
        fewest, most = _COMPONENTS[function]
        if not fewest <= len(arguments) <= most:
            raise bad_request(f"The function {function} takes {fewest} to {most} arguments.")
        return Component(function=function, arguments=tuple(arguments))


def _checked(select: Select) -> Select:
    """Refuse what no account answers: aggregates where there is no group, and the like."""
    outside = [*(x.expression for x in select.group), *(x.expression for x in select.order)]
    if select.where is not None:
        outside.append(select.where)
    if any(has_aggregate(x) for x in outside):
        raise bad_request("An aggregate may only be selected, not be a condition or an order.")
    if select.group and select.order:
        raise refused("ORDER BY beside GROUP BY")
    if select.is_aggregate:  # one result is in any order
        select = replace(select, order=())
    if len(select.order) > 1 and any(x.is_by_score for x in select.order):
        raise bad_request("ORDER BY VectorDistance takes no other value beside it.")
    if select.rank and (select.sources or select.distinct or select.is_aggregate):
        raise refused("ORDER BY RANK beside JOIN, DISTINCT, GROUP BY or an aggregate")
    if select.group and not select.shown:
        raise bad_request("'SELECT *' cannot be grouped: select what GROUP BY names.")
    keys = [x.expression for x in select.group]
    shown = select.shown if select.is_aggregate else ()
    alone = [x.text for x in shown if not is_of_groups(x.expression, keys)]
    if alone:
        raise bad_request(
            f"{alone[0]!r} is selected beside groups: name it in GROUP BY, or aggregate it."
        )
    names = sorted(x.name for x in select.columns)
    twice = [a for a, b in pairwise(names) if a == b]
    if twice:
        raise bad_request(f"The property name {twice[0]!r} is selected twice: say AS.")
    return select


def _name_of(expression: Expression) -> str | None:
    """Return the last property name of a path, under which its column is known."""
    if not isinstance(expression, Property):
        return None
    last = expression.steps[-1] if expression.steps else expression.root
    return last if isinstance(last, str) and last else None
