"""The seeds of each change: the first ones of the mixture, and the most telling before others.

Together the telling ones come to every probe, to most of them three times, in a minute of two
processors. They were chosen among the first 600 by the probes that each hits. Where they miss
a probe after a change of the product or of the worlds, others are to be chosen.
"""

from typing import Final

SEEDS: Final = 600
_TELLING: Final = """
21 42 43 44 47 52 53 55 56 57 62 64 65 77 86 88 96 105 108 115 117 122 124 126 129 130
131 138 140 147 152 154 157 171 172 175 177 185 197 202 207 222 244 276 297 299 302 311 315 325
332 333 350 355 360 371 376 392 393 402 403 407 425 446 454 458 477 478 480 491 495 498 502
508 513 514 524 525 534 553 572 576 581 586
"""
TELLING: Final = frozenset(map(int, _TELLING.split()))
