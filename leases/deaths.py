"""How the last owners of a lease have ended: what finds a change that kills its process.

An owner that did not release its lease has died, whatever it died of. Where that comes twice
in a row, with no progress of the checkpoint between, a change may be the cause. So the next
owner delivers with *care* what the dead may have read: a change alone, one at a time in the
whole process, with a note of it in the lease before, and the checkpoint after it. An owner that
dies under a note leaves a suspect. A change that ``BLAMED_AFTER`` owners died with is put
aside.

A change that kills its process is put aside after six deaths: two without care, and four with
it. Processes that are killed from outside blame a change only if four in a row die under a note
of it, and no call about it succeeds between.

Limits: no death of a process of another kind counts, nor that of an owner that is robbed at
once (``max_handoff_time`` of 0). Other ranges go on beside one under care, and may leave a
suspect that is innocent; but its count is over with the progress of its range.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

CARE_FROM: Final = 2
"""Deaths in a row from which on a range is delivered with care."""
BLAMED_AFTER: Final = 4
"""Owners that died with a change, after which it is put aside."""


class Deaths(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``count`` are owners in a row that have died while the position stood still. The next
    ``care`` changes are to be delivered with care, and all while there is a suspect, which may
    come last. ``noted`` is the sequence of the change that the owner is delivering so, ``None``
    between two. ``suspect`` is the change that the last ``with_suspect`` owners with a note
    died with. ``cause`` is how the last one ended, empty where no supervisor has seen it.
    """

    count: int = 0
    care: int = 0
    noted: int | None = None
    suspect: int | None = None
    with_suspect: int = 0
    cause: str = ""

    def died(self, *, read: int, cause: str = "") -> "Deaths":
        """Count an owner that died. It may have read so many changes behind its checkpoint."""
        count, suspect, with_suspect = self.count + 1, self.suspect, self.with_suspect
        if self.noted is not None:
            with_suspect = with_suspect + 1 if self.noted == suspect else 1
            suspect = self.noted
        return Deaths(
            count=count,
            care=max(self.care, read) if count >= CARE_FROM else self.care,
            suspect=suspect,
            with_suspect=with_suspect,
            cause=cause,
        )

    def noting(self, sequence: int) -> "Deaths":
        """Note the change that is delivered next, alone."""
        assert self.care, f"{sequence} is noted, and nothing asks for care"
        assert self.noted is None, f"{sequence} is noted while {self.noted} is delivered"
        return replace(self, noted=sequence)

    def returned(self, done: int) -> "Deaths":
        """The call about the noted change is over, and its process lives: ``done`` is 1, or 0
        if it failed. Then a suspect stays one: it may have failed before the change could kill.
        """
        left = self.cleared() if done and self.noted == self.suspect else self
        least = int(left.suspect is not None)
        return replace(left, noted=None, care=max(self.care - done, least))

    def cleared(self) -> "Deaths":
        """Its suspect was survived, or put aside."""
        return replace(self, suspect=None, with_suspect=0)

    def progressed(self) -> "Deaths":
        """The position has moved: nobody died of what lay there."""
        return Deaths(care=self.care, noted=self.noted)

    def released(self) -> "Deaths":
        """Its owner ends in order. The next owner goes on with care, where that is due."""
        return replace(self, count=0, noted=None)

    def blames(self, sequence: int) -> bool:
        """Whether so many owners died with this change that no other is to be given it."""
        return sequence == self.suspect and self.with_suspect >= BLAMED_AFTER

    @property
    def reason(self) -> str:
        """Why its suspect is put aside."""
        by = f" ({self.cause})" if self.cause else ""
        times = "1 time" if self.with_suspect == 1 else f"{self.with_suspect} times"
        return f"killed its process {times}{by}"

    @property
    def note(self) -> str | None:
        """What to tell people of a range, ``None`` while it is delivered like all others."""
        if not self.care:
            return None
        suspect = f": change {self.suspect} {self.reason}" if self.with_suspect else ""
        return f"its owners died, so it is delivered with care{suspect}"


NO_DEATHS = Deaths()
