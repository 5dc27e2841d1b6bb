"""Errors of users' code that hide what they are: whoever reports one must survive it."""


class Unprintable(ValueError):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Opaque(ValueError):
    def __getattribute__(self, name: str) -> object:
        raise SystemExit(3)
