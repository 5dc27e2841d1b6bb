"""Breaks of the page: who may act, who sees bodies, and what a watcher may cost."""

from .mutant import Mutant

_OWN_LETTERS = (
    "tests/acceptance/test_operating.py"
    "::test_fleets_that_share_a_place_keep_and_replay_their_own_letters"
)
_ACTIONS = "tests/integration/test_page_actions.py"
_LIVE = "tests/unit/host/page/test_live.py"
_VIEW = "tests/unit/host/page/test_view.py"

PAGE = (
    Mutant(
        name="any token may act from the page",
        file="host/page/access.py",
        before="if hmac.compare_digest(",
        after="if token or hmac.compare_digest(",
        rule=0,
        tests=(_ACTIONS,),
    ),
    Mutant(
        name="a dashboard without actions acts",
        file="host/page/access.py",
        before="if secret is None or not self._acts:",
        after="if secret is None:",
        rule=0,
        tests=(_ACTIONS,),
    ),
    Mutant(
        name="a page of another site sees dead letters by its name",
        file="host/page/access.py",
        before="_is_loopback(request.remote) and _is_loopback(_named(request.host))",
        after="_is_loopback(request.remote)",
        rule=0,
        tests=(_ACTIONS,),
    ),
    Mutant(
        name="dead letters that are away are an error of the page",
        file="host/page/desk.py",
        before="            except (DeadLettersUnavailable, OSError) as error:",
        after="            except OSError as error:",
        rule=0,
        tests=(_ACTIONS,),
    ),
    Mutant(
        name="the page replays the letters of other observers",
        file="host/page/desk.py",
        before="found=own, left=left)",
        after="found=found, left=left)",
        rule=12,
        tests=(_ACTIONS,),
    ),
    Mutant(
        name="replay --all gives the letters of others to this observer",
        file="cli/dead_letters.py",
        before="        if not ids and of is None:\n",
        after='        if not ids and of == "":\n',
        rule=12,
        tests=(_OWN_LETTERS,),
    ),
    Mutant(
        name="letters of all observers are replayed for one",
        file="host/operations/letters.py",
        before=" and of in (None, x.observer)]",
        after=" and of != x.id]",
        rule=12,
        tests=(_OWN_LETTERS,),
    ),
    Mutant(
        name="a replay says that its own border raised",
        file="host/operations/letters.py",
        before="{describe(error)}",
        after="{type(error).__name__}: {error}",
        rule=0,
        tests=("tests/unit/host/test_replaying_letters.py",),
    ),
    Mutant(
        name="a form of another site can ask for an action",
        file="host/page/desk.py",
        before='if request.content_type != "application/json":',
        after="if False:",
        rule=0,
        tests=(_ACTIONS,),
    ),
    Mutant(
        name="a question is its own answer",
        file="host/page/desk.py",
        before="if not wanted.confirm:",
        after="if False:",
        rule=0,
        tests=(_ACTIONS,),
    ),
    Mutant(
        name="the page moves what a host reads",
        file="host/page/desk.py",
        before="if lease.owner is not None and lease.paused is None:",
        after="if False:",
        rule=0,
        tests=(_ACTIONS,),
    ),
    Mutant(
        name="a member answers for another",
        file="host/page/peers.py",
        before="if report.host == name:",
        after="if True:",
        rule=0,
        tests=(_ACTIONS,),
    ),
    Mutant(
        name="each who watches has a look of his own",
        file="host/page/live.py",
        before="if clock() - self._looked_at < self._every:",
        after="if False:",
        rule=0,
        tests=(_LIVE,),
    ),
    Mutant(
        name="a watcher that missed something is sent the rest",
        file="host/page/live.py",
        before="if number > self._number or len(steps) != self._number - number:",
        after="if number > self._number:",
        rule=0,
        tests=(_LIVE,),
    ),
    Mutant(
        name="watchers are served without a limit",
        file="host/page/live.py",
        before="if self._watchers >= _MOST:",
        after="if False:",
        rule=0,
        tests=(_LIVE,),
    ),
    Mutant(
        name="a range that was resumed stays paused on the page",
        file="host/page/view.py",
        before="if getattr(old, x) != (value := getattr(new, x))",
        after="if (value := getattr(new, x)) is not None",
        rule=0,
        tests=(_VIEW,),
    ),
)
