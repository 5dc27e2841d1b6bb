"""The seeds of each change: the first ones of the mixture, and the most telling before others.

Together the telling ones come to every probe, to most of them three times, in a minute of two
processors. They were chosen among the first 600 by the probes that each hits. Where they miss
a probe after a change of the product or of the worlds, others are to be chosen.
"""

from typing import Final

SEEDS: Final = 600
_TELLING: Final = """
0 5 41 43 53 56 64 65 66 86 96 98 108 115 122 131 136 140 143 148 151 158 174 181 191
196 202 205 219 222 244 245 247 260 261 265 267 269 285 291 339 354 358 369 377 381 386
390 394 395 399 401 404 407 469 513 534 557 572 576 580 581 586 588
"""
TELLING: Final = frozenset(map(int, _TELLING.split()))
