"""What operators can do from the page: as the commands do it, in the commands' sentences.

    POST /page/actions         first without ``confirm``: what it would mean, and a question;
                               then with it: it is done, and what was done is said
    GET  /page/dead-letters    those that failed last, or with ``?id=`` the body of one

One action is carried out at a time. Each is logged, with the name that was given, and with
the address it came from.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import hdrs, web
from msgspec import Meta

from changefeed.feeds.errors import FeedError
from changefeed.feeds.feed import Feed
from changefeed.fleet import claims
from changefeed.fleet import letters as of_letters
from changefeed.fleet import reset as resetting
from changefeed.fleet.phrases import Outcome, named_leases, repeats
from changefeed.fleet.reset import PositionMove
from changefeed.host.page.access import Access, origin
from changefeed.host.page.answer import json_answer
from changefeed.host.settings import Settings
from changefeed.leases.container import LeaseContainer
from changefeed.observers.dead_letters import DeadLetter, DeadLetters, LetterHead, LetterId
from changefeed.observers.observer import ObserverFactory
from changefeed.runtime.errors import StoreError, UserError
from changefeed.runtime.logs import get_logger
from changefeed.runtime.quantities import counted
from changefeed.runtime.web_server import take_time

_log = get_logger()
_MAX_SECONDS = 300.0
_MAX_LETTERS = 200
_MAX_BODY = 200_000

Name = Annotated[str, Meta(min_length=1, max_length=4000)]


class ActionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the page asks for. ``by`` is who, for the log."""

    action: Literal["pause", "resume", "release", "reset", "replay", "discard"]
    by: Annotated[str, Meta(min_length=1, max_length=100)]
    ranges: Annotated[list[Name], Meta(max_length=10_000)] = []
    letters: Annotated[list[Name], Meta(max_length=10_000)] = []
    reason: Annotated[str, Meta(min_length=1, max_length=200)] = "paused by hand"
    to: Annotated[str, Meta(max_length=4000)] = ""
    confirm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionContext:
    """What actions are done with. Hosts list leases every ``listing_every`` seconds.
    ``make_observer`` raises ``UserError`` if there is none.
    """

    settings: Settings
    listing_every: float
    container: LeaseContainer
    feed: Feed | None
    make_observer: Callable[[], ObserverFactory]


@dataclass(frozen=True, slots=True)
class _Plan:
    """``moves`` and ``found`` are what it is about, as it was looked up; ``left`` says what
    was asked for and is not done.
    """

    question: str
    says: Sequence[str]
    moves: Sequence[PositionMove] = ()
    found: Sequence[LetterHead] = ()
    left: Sequence[str] = ()


class ActionHandler:
    """``context`` returns what actions are done with, ``None`` before a host has started."""

    def __init__(self, context: Callable[[], ActionContext | None], access: Access) -> None:
        self._context = context
        self._access = access
        self._acting = asyncio.Lock()
        self._reading = asyncio.Lock()

    @property
    def routes(self) -> Sequence[web.RouteDef]:
        return [
            web.post("/page/actions", _answered(self._act, wrong=HTTPStatus.BAD_REQUEST)),
            web.get("/page/dead-letters", _answered(self._letters, wrong=HTTPStatus.NOT_FOUND)),
        ]

    async def _act(self, request: web.Request) -> Mapping[str, Any]:
        await self._access.check_action(request)
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="an action is asked for in JSON")
        try:
            wanted = msgspec.json.decode(await request.read(), type=ActionRequest)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise web.HTTPBadRequest(text=f"this is not an action: {error}") from error
        if self._acting.locked():
            raise web.HTTPConflict(text="another action is under way; try again")
        async with self._acting:
            take_time(request, _MAX_SECONDS)
            context = self._opened()
            plan = await _planned(context, wanted)
            if not wanted.confirm:
                return {"question": plan.question, "says": plan.says}
            _log.warning("page.action", outcome="begun", **_logged(wanted), **origin(request))
            said = await _carried_out(context, wanted, plan)
        failed = sum(x.failed for x in said)
        _log.info(
            "page.action", outcome="done", action=wanted.action, by=wanted.by, failed=failed
        )
        return {"says": [x.text for x in said], "failed": failed}

    async def _letters(self, request: web.Request) -> Mapping[str, Any]:
        await self._access.check_letters(request)
        async with self._reading:
            take_time(request, _MAX_SECONDS)
            return await _letters(self._opened().settings, request.query.get("id"))

    def _opened(self) -> ActionContext:
        context = self._context()
        if context is None:
            raise web.HTTPServiceUnavailable(text="the host has not started yet")
        return context


def _answered(
    handler: Callable[[web.Request], Awaitable[Mapping[str, Any]]], *, wrong: HTTPStatus
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Answer with what ``handler`` returns, or say why not; ``wrong`` is for mistakes."""

    async def answer(request: web.Request) -> web.Response:
        try:
            found = json_answer(await handler(request))
        except web.HTTPException as refused:
            found = json_answer({"error": refused.text}, refused.status)
        except UserError as error:
            found = json_answer({"error": str(error)}, wrong)
        except (StoreError, FeedError, OSError) as error:
            done = "" if request.method == hdrs.METH_GET else "; some of it may have been done"
            found = json_answer({"error": f"{error}{done}"}, HTTPStatus.SERVICE_UNAVAILABLE)
        return found.response

    return answer


def _logged(wanted: ActionRequest) -> dict[str, Any]:
    about = {"ranges": wanted.ranges, "letters": wanted.letters, "to": wanted.to}
    if wanted.action == "pause":
        about["reason"] = wanted.reason
    given = {name: value for name, value in about.items() if value}
    return {"action": wanted.action, "by": wanted.by, **given}


async def _planned(context: ActionContext, wanted: ActionRequest) -> _Plan:
    """Say what it would mean. Raise ``UserError`` for what cannot be done."""
    if wanted.action in ("replay", "discard"):
        return await _about_letters(context, wanted)
    if not wanted.ranges:
        raise UserError("name the ranges")
    leases = named_leases(await context.container.list(), wanted.ranges)
    count = counted(len(leases), "range")
    if wanted.action == "pause":
        return _Plan(f"Pause {count}?", [claims.PAUSE_MEANS])
    if wanted.action == "resume":
        return _Plan(f"Resume {count}?", [claims.RESUME_MEANS])
    if wanted.action == "release":
        if len(leases) != 1:
            raise UserError("one range is released at a time")
        question = f"Take the lease of {leases[0].range_id} from {leases[0].owner}?"
        return _Plan(question, [claims.RELEASE_MEANS])
    return await _about_moves(context, wanted)


async def _about_moves(context: ActionContext, wanted: ActionRequest) -> _Plan:
    resetting.check_position(wanted.ranges, wanted.to)
    if context.feed is None:
        raise UserError("the feed cannot be opened, so no position in it can be settled")
    leases = named_leases(await context.container.list(), wanted.ranges)
    for lease in leases:
        if lease.owner is not None and lease.paused is None:
            raise UserError(
                f"range {lease.range_id} is owned by {lease.owner}: pause the range first. If "
                f"that host is dead, changefeed reset sees it, and moves the range"
            )
    moves = await resetting.planned_moves(context.feed, context.container, leases, wanted.to)
    says = [
        f"{x.range_id}: from {x.lease.position} to {x.to}: {repeats(x.again)}" for x in moves
    ]
    return _Plan(f"Move {counted(len(moves), 'range')}?", says, moves=moves)


async def _about_letters(context: ActionContext, wanted: ActionRequest) -> _Plan:
    if not wanted.letters:
        raise UserError("name the letters")
    async with _existing(context.settings) as letters:
        found = of_letters.select_letters(await letters.list(), wanted.letters)
    if wanted.action == "discard":
        question = f"Discard {counted(len(found), 'letter')}?"
        return _Plan(question, [of_letters.DISCARD_MEANS], found=found)
    context.make_observer()
    own, others = of_letters.by_observer(found, context.settings.observer.name)
    left = of_letters.skipped(others)
    if not own:
        raise UserError("; ".join(left))
    question = f"Replay {counted(len(own), 'letter')}?"
    return _Plan(question, [of_letters.REPLAY_MEANS, *left], found=own, left=left)


async def _carried_out(
    context: ActionContext, wanted: ActionRequest, plan: _Plan
) -> list[Outcome]:
    container = context.container
    match wanted.action:
        case "pause":
            return await claims.pause_ranges(container, wanted.ranges, wanted.reason)
        case "resume":
            return await claims.resume_ranges(container, wanted.ranges)
        case "release":
            (name,) = wanted.ranges
            every = context.listing_every
            return await claims.release_range(container, name, listing_every=every)
        case "reset":
            return [await resetting.carry_out_move(container, x) for x in plan.moves]
        case "replay" | "discard":
            return [x async for x in _with_letters(context, wanted, plan)]


async def _with_letters(
    context: ActionContext, wanted: ActionRequest, plan: _Plan
) -> AsyncIterator[Outcome]:
    async with _existing(context.settings) as letters:
        if wanted.action == "discard":
            work = of_letters.discard_letters(letters, plan.found)
        else:
            manual = context.settings.observer.checkpoint == "manual"
            make = context.make_observer()
            work = of_letters.replay_letters(letters, plan.found, make, manual=manual)
        async for said in work:
            yield said
    for text in plan.left:
        yield Outcome(text, failed=True)


async def _letters(settings: Settings, letter_id: str | None) -> dict[str, Any]:
    async with _existing(settings) as letters:
        if letter_id is not None:
            letter = await letters.get(LetterId(letter_id))
            if letter is None:
                raise UserError(f"there is not a dead letter {letter_id!r} any more")
            return {"body": _shown(letter), "trace": letter.failure.trace}
        found = await letters.list()
    newest = sorted(found, key=lambda x: x.failed_at, reverse=True)[:_MAX_LETTERS]
    own, _ = of_letters.by_observer(newest, settings.observer.name)
    return {
        "count": len(found),
        "own": [x.id for x in own],
        "letters": msgspec.to_builtins(newest),
    }


def _existing(settings: Settings) -> AbstractAsyncContextManager[DeadLetters]:
    return of_letters.existing_letters(settings.observer.dead_letters, settings.open_options)


def _shown(letter: DeadLetter) -> str:
    body = of_letters.LetterDocument.whole(letter).body
    text = body if isinstance(body, str) else json.dumps(body, indent=2, ensure_ascii=False)
    if len(text) <= _MAX_BODY:
        return text
    return f"{text[:_MAX_BODY]}\n… {len(text) - _MAX_BODY:,} characters more"
