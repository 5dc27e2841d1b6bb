"""The seeds of each change: the first ones of the mixture, and the most telling before others.

Together the telling ones come to every probe, to most of them three times, in a minute of two
processors. They were chosen among the first 600 by the probes that each hits. Where they miss
a probe after a change of the product or of the worlds, others are to be chosen.
"""

from typing import Final

SEEDS: Final = 600
_TELLING: Final = """
43 47 52 53 55 56 57 64 72 86 88 96 117 122 124 138 140 143 144 147 152 154 157 171 172 175 177
181 185 207 232 257 268 276 282 286 288 289 297 299 302 310 311 315 325 332 333 339 350 358 360
368 371 374 377 385 392 393 398 402 403 407 446 454 458 478 480 490 491 498 502 508 514 518 524
525 535 541 550 553 556 563 572 576 580 588 598
"""
TELLING: Final = frozenset(map(int, _TELLING.split()))
