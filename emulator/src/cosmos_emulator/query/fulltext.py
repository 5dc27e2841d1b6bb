"""Full-text search: words, brought to their stems by the language of their path.

A term of several words is a phrase: it is found where its words follow each other. Limits: no
word is left out for being frequent, and no other spelling of a word is found.
"""

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from cosmos_emulator.json_values import UNDEFINED
from cosmos_emulator.query.budget import Budget
from cosmos_emulator.query.given import Given, Path, QueryFunction, package_of_extra
from cosmos_emulator.query.values import is_number

LANGUAGES: Final = {
    "de-DE": "german",
    "en-US": "english",
    "es-ES": "spanish",
    "fr-FR": "french",
    "it-IT": "italian",
    "pt-BR": "portuguese",
    "pt-PT": "portuguese",
}
"""The languages of full-text policies, and what stemmers call them."""
_WORD: Final = re.compile(r"\w+")
_LONGEST_STEMMED: Final = 64  # letters: stemmers go through a word many times
_SATURATION: Final = 1.2  # how soon a word that is there again counts for less: BM25's k1
_LENGTH: Final = 0.75  # how much a long text counts for less: BM25's b


class Words:
    """Cuts texts of one language into stems, and remembers the last: functions share it."""

    def __init__(self, language: str, budget: Budget) -> None:
        package = package_of_extra("snowballstemmer", "Full-text search")
        self._stem = package.stemmer(LANGUAGES[language]).stemWord
        self._budget = budget
        self._stems: dict[str, str] = {}
        self._text: str | None = None
        self._words: list[str] = []
        self._phrase = lru_cache(maxsize=256)(self._cut)  # of terms, which come again

    def of(self, text: str) -> list[str]:
        """Return the stems of a text."""
        if text is not self._text:
            self._text, self._words = text, self._cut(text)
        return self._words

    def _cut(self, text: str) -> list[str]:
        found: list[str] = []
        for match in _WORD.finditer(text.lower()):
            self._budget.step()
            word = match[0]
            stem = self._stems.get(word)
            if stem is None:
                stem = self._stem(word) if len(word) <= _LONGEST_STEMMED else word
                self._stems[word] = stem
            found.append(stem)
        return found

    def times(self, term: str, words: Sequence[str]) -> int:
        """Return how often a term is found among the words of a text."""
        phrase = self._phrase(term)
        if len(phrase) == 1:
            return words.count(phrase[0])
        found = 0
        for start in range(len(words) - len(phrase) + 1) if phrase else ():
            self._budget.step()
            found += words[start : start + len(phrase)] == phrase
        return found


def score(
    times: Sequence[int], length: int, *, documents: int, words: int, hits: Sequence[int]
) -> float:
    """Return the score of a text by BM25, as Lucene has it.

    ``times`` are those of each term in the text, of ``length`` words. All ``documents`` have
    so many ``words`` together, and so many of them have each term: ``hits``.
    """
    long = _SATURATION * (1 - _LENGTH + _LENGTH * length * documents / max(words, 1))
    found = 0.0
    for count, hit in zip(times, hits, strict=True):
        rarity = math.log(1 + (documents - hit + 0.5) / (hit + 0.5))
        found += rarity * count * (_SATURATION + 1) / (count + long)
    return found


def _bound(make: Callable[[Words], Callable[..., Any]]) -> Callable[[Given, Path], Any]:
    """Return what makes a function of the words of a path's language."""

    def bound(given: Given, path: Path) -> Callable[..., Any]:
        policies = given.policies
        language = policies.languages.get(path, policies.language)
        if language not in given.words:
            given.words[language] = Words(language, given.budget)
        function = make(given.words[language])

        def called(text: Any, *terms: Any) -> Any:
            return function(text, *terms) if isinstance(text, str) else UNDEFINED

        return called

    return bound


def _containing(quantifier: Callable[[Any], bool]) -> Callable[[Given, Path], Any]:
    def make(words: Words) -> Callable[..., Any]:
        def contains(text: str, *terms: Any) -> Any:
            if not all(isinstance(x, str) for x in terms):
                return UNDEFINED
            found = words.of(text)
            return quantifier(words.times(x, found) > 0 for x in terms)

        return contains

    return _bound(make)


def _counting(words: Words) -> Callable[..., Any]:
    return lambda text: len(words.of(text))


def _scoring(words: Words) -> Callable[..., Any]:
    def scored(text: str, terms: Any, documents: Any, total: Any, hits: Any) -> Any:
        listed = isinstance(terms, list) and isinstance(hits, list) and len(terms) == len(hits)
        if not listed or not all(map(is_number, (documents, total, *hits))):
            return UNDEFINED
        found = words.of(text)
        times = [words.times(x, found) if isinstance(x, str) else 0 for x in terms]
        return score(times, len(found), documents=documents, words=total, hits=hits)

    return scored


CONTAINS: Final = QueryFunction(arity=(2, 2), bound=_containing(all))
CONTAINS_ALL: Final = QueryFunction(arity=(2, 100), bound=_containing(all))
CONTAINS_ANY: Final = QueryFunction(arity=(2, 100), bound=_containing(any))
WORD_COUNT: Final = QueryFunction(arity=(1, 1), bound=_bound(_counting))
SCORE: Final = QueryFunction(arity=(5, 5), bound=_bound(_scoring))
"""Of a text, terms, how many items there are, words in all of them, and items for each term."""
