"""Texts from hand-written parts: a seeded grammar whose symbols are decks of cards.

A grammar is lines `symbol: text`. A text may hold `{symbol}`, replaced by one of that symbol's
texts, and `{3..40}`, replaced by a whole number between 3 and 40. A symbol's texts are used up
before any of them comes again, so that repetitions lie as far apart as the parts allow.
"""

import random
import re

from tlkit.errors import SpecError

_SLOT = re.compile(r"\{([^{}]+)\}")
_NUMBERS = re.compile(r"(\d+)\.\.(\d+)")


class Grammar:
    r"""Draws texts from a grammar, the same ones for the same seed.

    Example:
        >>> grammar = Grammar("greeting: Good {time}!\ntime: morning | evening", seed=1)
        >>> sorted({grammar.draw("greeting") for _ in range(2)})
        ['Good evening!', 'Good morning!']
    """

    def __init__(self, text: str, *, seed: int) -> None:
        self._random = random.Random(seed)
        self._decks: dict[str, list[str]] = {}
        self._texts: dict[str, list[str]] = {}
        for line in filter(None, map(str.strip, text.splitlines())):
            if not line.startswith("#"):
                symbol, _, texts = line.partition(": ")
                self._texts.setdefault(symbol, []).extend(texts.split(" | "))

    def draw(self, symbol: str) -> str:
        """One text of a symbol, with all its slots filled.

        Raises:
            SpecError: The grammar has no such symbol.
        """
        if symbol not in self._texts:
            raise SpecError(f"The grammar has no symbol {symbol!r}; it has {sorted(self._texts)}.")
        deck = self._decks.setdefault(symbol, [])
        if not deck:
            deck.extend(self._shuffled(self._texts[symbol]))
        return _SLOT.sub(lambda slot: self._fill(slot.group(1)), deck.pop())

    def _fill(self, slot: str) -> str:
        if numbers := _NUMBERS.fullmatch(slot):
            low, high = map(int, numbers.groups())
            return str(low + self._below(high - low + 1))
        return self.draw(slot)

    def _below(self, stop: int) -> int:
        # Python promises the same `random()` for a seed in every version, of other methods not.
        return int(self._random.random() * stop)

    def _shuffled(self, texts: list[str]) -> list[str]:
        deck = list(texts)
        for last in range(len(deck) - 1, 0, -1):
            other = self._below(last + 1)
            deck[last], deck[other] = deck[other], deck[last]
        return deck
