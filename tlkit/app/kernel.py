"""The explorer's side that computes: messages in, replies out, no browser needed."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tlkit.app.bench import Bench
from tlkit.app.code import code
from tlkit.app.pieces import Cell, Reply, after_pieces, map_pieces
from tlkit.app.screen import frame, picked
from tlkit.app.state import State, sites_of, width_of
from tlkit.errors import SpecError, TlkitError
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.spec.attention import Knockout
from tlkit.spec.interventions import Ablate
from tlkit.spec.sites import Site

KEPT = 4
"""How many benches and maps are kept, so that going back is quick."""

_TURN = threading.Lock()
"""One computation at a time: engines swap a model's modules while they run, and a browser tab
has a thread of its own."""


class Kernel:
    """Answers messages about one screen.

    A message is a mapping with ``type``; `answer` says what there is. Every message gets one
    reply, with ``kind``, and ``more``: whether pieces of work are left to be asked for by
    ``{"type": "more"}``. What changes the screen drops the pieces that it makes stale.

    Args:
        model: A loaded model that the packed engine serves.
        state: What is on the screen at first.

    Raises:
        SpecError: The model or the prompts cannot be explored.
    """

    def __init__(self, model: Any, state: State) -> None:
        self.model, self.state, self._parts = model, state, Parts(model)
        self._first, self._history = state, []
        self._benches: OrderedDict[Any, Bench] = OrderedDict()
        self._maps: OrderedDict[Any, dict[Cell, float]] = OrderedDict()
        self._map: Iterator[Reply] | None = None
        self._after: Iterator[Reply] | None = None
        self._check(state)

    def answer(self, message: Mapping[str, Any]) -> Reply:
        """One reply to one message; whatever goes wrong is a reply, too.

        ``start``, ``undo``, ``reset``, ``code``, ``more``; ``show`` with the fields of
        `State.shown`; ``pick`` with layer, at and add; ``cut`` with layer, head (None: all), query
        and key; ``ablate`` with layer and head; ``edit`` with the pair's four texts.
        """
        handlers: dict[Any, Callable[[Mapping[str, Any]], Reply]] = {
            "start": lambda message: self._screen(),
            "show": self._show,
            "pick": self._pick,
            "cut": self._cut,
            "ablate": self._ablate,
            "edit": self._edit,
            "undo": self._undo,
            "reset": lambda message: self._become(self._first),
            "code": lambda message: {"kind": "code", "code": code(self.model, self.state)},
            "more": self._more,
        }
        with _TURN:
            try:
                handler = handlers.get(message.get("type"))
                if handler is None:
                    raise SpecError(f"The explorer knows no message {message.get('type')!r}.")
                reply = handler(message)
            except TlkitError as error:
                reply = {"kind": "error", "text": " ".join(str(error).split())}
            except Exception as error:  # the widget must say what happened, whatever it was
                text = " ".join(f"{type(error).__name__}: {error}".split())
                reply = {"kind": "error", "text": text}
        left = self._map is not None or self._after is not None
        return {**reply, "re": message.get("id"), "more": left}

    def bench(self, state: State) -> Bench:
        """What measures a state's pair; made once."""
        if state.bench_key not in self._benches:
            self._benches[state.bench_key] = Bench(self.model, state)
            while len(self._benches) > KEPT:
                self._benches.popitem(last=False)
        self._benches.move_to_end(state.bench_key)
        return self._benches[state.bench_key]

    def _check(self, state: State) -> None:
        """Refuse a state that cannot be measured, before it is on the screen."""
        there = sites_of(self._parts)
        if state.site not in there:
            raise SpecError(
                f"{self._parts.name} has no site {state.site!r}; it has {', '.join(there)}."
            )
        self.bench(state).baseline()

    def _become(self, state: State) -> Reply:
        """Go to another state, keeping this one for undo; if it cannot be, nothing changes."""
        old = self.state
        self._check(state)
        try:
            reply = self._go(state)
        except Exception:
            self.state = old
            raise
        self._history.append(old)
        return {**reply, "undo": True}

    def _go(self, state: State) -> Reply:
        old, self.state = self.state, state
        drawn = [(one.map_key, one.example, one.pairs) for one in (old, state)]
        if drawn[0] == drawn[1]:
            return {"kind": "picked", "picked": self._picked()}
        return self._screen()

    def _screen(self) -> Reply:
        """The whole screen; its map begins anew, from what is known of it."""
        state, bench = self.state, self.bench(self.state)
        reply = {
            "kind": "screen",
            "picked": self._picked(),
            "frame": frame(self.model, state, bench),
            "undo": bool(self._history),
        }
        known = self._maps.setdefault(state.map_key, {})
        self._maps.move_to_end(state.map_key)
        while len(self._maps) > KEPT:
            self._maps.popitem(last=False)
        self._map = map_pieces(self.model, state, bench, known)
        return reply

    def _picked(self) -> Reply | None:
        """What the changes do; the pieces that follow replace those of older changes."""
        self._after = None
        if not self.state.changes:
            return None
        bench = self.bench(self.state)
        found = picked(self.model, self.state, bench)
        self._after = after_pieces(self.model, self.state, bench)
        return found

    def _show(self, message: Mapping[str, Any]) -> Reply:
        fields = {k: v for k, v in message.items() if k not in ("type", "id")}
        return self._become(self.state.shown(**fields))

    def _pick(self, message: Mapping[str, Any]) -> Reply:
        layer = self._index(message, "layer", self._parts.n_layers)
        at = self._index(message, "at", width_of(self._parts, self.state))
        patch = self.state.cell(layer, at)
        if not message.get("add"):
            return self._become(replace(self.state, changes=(patch,)))
        kept = tuple(one for one in self.state.changes if one != patch)
        if len(kept) == len(self.state.changes):  # else it was there, and is taken out
            kept = (*kept, patch)
        return self._become(replace(self.state, changes=kept))

    def _cut(self, message: Mapping[str, Any]) -> Reply:
        parts = self._parts
        length = len(self.state.prompts.ids(self.state.base)[0])
        query, key = (self._index(message, name, length) for name in ("query", "key"))
        if key > query:
            raise SpecError(f"Position {query} cannot attend to {key}, which comes after it.")
        layers = self._maybe(message, "layer", parts.n_layers)
        heads = self._maybe(message, "head", parts.n_heads)
        cut = Knockout(queries=(query,), keys=(key,), layers=layers, heads=heads)
        return self._become(replace(self.state, changes=(*self.state.changes, cut)))

    def _ablate(self, message: Mapping[str, Any]) -> Reply:
        parts = self._parts
        layer = self._index(message, "layer", parts.n_layers)
        head = self._index(message, "head", parts.n_heads)
        off = Ablate(Site("z", layer=layer, head=head))
        return self._become(replace(self.state, changes=(*self.state.changes, off)))

    def _edit(self, message: Mapping[str, Any]) -> Reply:
        sides = [[message.get(name)] for name in ("clean", "corrupted")]
        given = [message.get(name) for name in ("answer", "wrong_answer")]
        answers: list[Any] = [[one] if one else None for one in given]
        chat = self.state.prompts.chat
        pair = Prompts.from_pairs(self.model, *sides, *answers, chat=chat)  # type: ignore[arg-type]
        return self._become(self.state.edited(pair))

    def _undo(self, message: Mapping[str, Any]) -> Reply:
        if not self._history:
            raise SpecError("There is nothing to undo.")
        reply = self._go(self._history.pop())
        return {**reply, "undo": bool(self._history)}

    def _more(self, message: Mapping[str, Any]) -> Reply:
        """The next piece: of what follows a click before the map."""
        for name in ("_after", "_map"):
            pieces = getattr(self, name)
            if pieces is not None:
                try:
                    return next(pieces)
                except StopIteration:
                    setattr(self, name, None)
                except Exception:
                    setattr(self, name, None)
                    raise
        return {"kind": "idle"}

    @staticmethod
    def _index(message: Mapping[str, Any], name: str, size: int) -> int:
        value = message.get(name)
        if type(value) is not int or not 0 <= value < size:
            raise SpecError(f"There is no {name} {value!r} here; there are 0 to {size - 1}.")
        return value

    def _maybe(self, message: Mapping[str, Any], name: str, size: int) -> tuple[int, ...] | None:
        """One index as a tuple, or None for all."""
        if message.get(name) is None:
            return None
        return (self._index(message, name, size),)
