"""The packed engine: all changed tokens of all lanes rise through the model's blocks together.

Nothing below a lane's entry layer or left of its first changed position differs from the base
run, by causality. So a lane is only its changed tokens; in each block they attend to the base
run's keys before them and to their own lane's keys. Each block is called once per chunk of tokens
with the model's own modules, its attention served by this class through the seam.
"""

import contextlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tlkit.engine.edits import EDGE, Edit
from tlkit.engine.embeddings import stream_of_embeddings
from tlkit.engine.lanes import Lane, View, make_view
from tlkit.engine.packed_attention import attention
from tlkit.engine.packed_edits import Editor
from tlkit.engine.record import Run, watch_slot
from tlkit.engine.seam import seam
from tlkit.engine.sources import Sources
from tlkit.models.bridge import Parts
from tlkit.spec.sites import EDGES

_OUTSIDE = {"embed", "resid_pre", "resid_post", "z", EDGE, *EDGES}
"""Sites that are edited before a block, or by the attention that is served here."""
_CACHES = ("past_key_values", "past_key_value", "layer_past", "cache")


class Packed:
    """Runs lanes on a recorded base run.

    Args:
        parts: The model.
        base: Its recorded run.
        sources: What edits put in.
        lanes: In order of entry layer.
        chunk: Tokens per call of a block.
        origin: The example that is the recorded run's first.
        after: Called with (layer, self) when the stream that enters ``layer`` is complete.
    """

    def __init__(
        self, parts: Parts, base: Run, sources: Sources, lanes: Sequence[Lane], *,
        chunk: int = 1024, origin: int = 0,
        after: Callable[[int, "Packed"], None] | None = None,
    ) -> None:  # fmt: skip
        self.parts, self.base = parts, base
        self.editor = Editor(base, sources)
        self.lanes, self.chunk, self.origin, self.after = lanes, chunk, origin, after
        self.offsets = [0]
        for lane in lanes:
            self.offsets.append(self.offsets[-1] + lane.rows)
        self.stream: Tensor
        self._entered = 0
        self.view: View
        self.hidden: Tensor
        self._views: dict[Any, View] = {}
        self._edits: dict[int, list[tuple[int, Edit]]] = {}
        for index, lane in enumerate(lanes):
            for layer, several in lane.edits.items():
                self._edits.setdefault(layer, []).extend((index, edit) for edit in several)

    def run(self, progress: Callable[[int], None] | None = None) -> Tensor:
        """The stream that leaves the last block, ``[row, d_model]``, lanes in order."""
        with torch.no_grad(), seam(self.parts, self):
            for layer in range(self.parts.n_layers + 1):
                self.step(layer)
                if progress:
                    progress(layer)
        return self.stream

    def step(self, layer: int) -> None:
        """Let lanes enter at a layer and rise through its block (at ``n_layers`` there is none).

        The model's own modules must be in place, with attention served by this object.
        """
        if layer == 0:
            first = self.base.stream[0]
            self.stream = first.new_empty(self.offsets[-1], first.shape[-1])
        begin = self._entered
        while self._entered < len(self.lanes) and self.lanes[self._entered].entry == layer:
            self._entered += 1
        self._enter(begin, self._entered, layer)
        self._edit_stream(self._entered, layer)
        with contextlib.ExitStack() as stack:
            self._watch(layer, stack)  # before others look, so that they see what edits leave
            if self.after:
                self.after(layer, self)
            if layer < self.parts.n_layers:
                self._rise(begin, self._entered, layer)

    def _watch(self, layer: int, stack: contextlib.ExitStack) -> None:
        """Edit what a block computes, while the stack is open."""
        several = [edit for _, edit in self._edits.get(layer, ()) if edit.layer == layer]
        inside = {edit.component for edit in several} - _OUTSIDE
        for component in sorted(inside):  # attn_out before resid_mid, which lie at one module
            stack.callback(watch_slot(self.parts, component, layer, self._edit_inside).remove)

    def _enter(self, begin: int, end: int, layer: int) -> None:
        """Give entering lanes the base run's stream."""
        if begin == end:
            return
        view = make_view(
            self.lanes[begin:end],
            self.offsets[begin:end],
            layer,
            self.stream.device,
            own=True,
            origin=self.origin,
        )
        self.stream[view.rows] = self.base.stream[layer][view.example[view.lane], view.position]
        if layer == 0:
            self._embed(begin, end)

    def _embed(self, begin: int, end: int) -> None:
        """Recompute the stream of lanes whose token embeddings are edited."""
        changed, embeddings = [], []
        for index in range(begin, end):
            lane = self.lanes[index]
            edits = [edit for edit in lane.edits.get(0, ()) if edit.component == "embed"]
            if edits:
                rows = self.base.sites["embed", 0][lane.example - self.origin, : lane.stop].clone()
                for edit in edits:
                    where = list(edit.positions)
                    rows[where] = self.editor.edited(edit, lane.example, rows[where])
                changed.append(index)
                embeddings.append(rows)
        if changed:
            streams = stream_of_embeddings(self.parts, embeddings)
            for index, stream in zip(changed, streams, strict=True):
                rows = slice(self.offsets[index], self.offsets[index + 1])
                self.stream[rows] = stream[self.lanes[index].start : self.lanes[index].stop]

    def _edit_stream(self, count: int, layer: int) -> None:
        """Apply edits of the stream that enters ``layer`` (or leaves the block before it)."""
        for index, edit in self._edits.get(layer, ()):
            if index < count and edit.component in ("resid_pre", "resid_post"):
                lane = self.lanes[index]
                rows = self.stream[self.offsets[index] : self.offsets[index + 1]]
                where = [p - lane.start for p in edit.positions]
                rows[where] = self.editor.edited(edit, lane.example, rows[where])

    def _rise(self, begin: int, end: int, layer: int) -> None:
        """Run one block on every lane that is in the stack."""
        narrow = begin
        while narrow < end and self.lanes[narrow].touched is None:
            narrow += 1
        for first, last in self._chunks(0, narrow, [lane.rows for lane in self.lanes[:narrow]]):
            view = self._view(first, last, layer)
            self.stream[view.rows] = self._block(view, layer, self.stream[view.rows])
        counts = [len(lane.touched or ()) for lane in self.lanes[narrow:end]]
        for first, last in self._chunks(narrow, end, counts):
            self._rise_narrow(first, last, layer)

    def _rise_narrow(self, first: int, last: int, layer: int) -> None:
        """A block in which only some of a lane's tokens change, none of them a key of another."""
        lanes, offsets = self.lanes[first:last], self.offsets[first:last]
        device = self.stream.device
        whole = make_view(lanes, offsets, layer, device, own=True, origin=self.origin)
        view = make_view(lanes, offsets, layer, device, own=False, origin=self.origin)
        base = self.base.stream
        out = self._block(view, layer, base[layer][view.example[view.lane], view.position])
        self.stream[whole.rows] = base[layer + 1][whole.example[whole.lane], whole.position]
        self.stream[view.rows] = out

    def _chunks(self, begin: int, end: int, rows: list[int]) -> list[tuple[int, int]]:
        """Neighbouring lanes of about ``chunk`` tokens together."""
        found: list[tuple[int, int]] = []
        first, tokens = begin, 0
        for index, count in zip(range(begin, end), rows, strict=True):
            if index > first and tokens + count > self.chunk:
                found.append((first, index))
                first, tokens = index, 0
            tokens += count
        if first < end:
            found.append((first, end))
        return found

    def _view(self, first: int, last: int, layer: int) -> View:
        """A view of whole lanes; its index tensors are kept while the same lanes are asked for."""
        key = (first, last)
        if key not in self._views:
            self._views[key] = make_view(
                self.lanes[first:last],
                self.offsets[first:last],
                layer,
                self.stream.device,
                own=True,
                origin=self.origin,
            )
        view = self._views[key]
        view.edits = {}
        several = self._edits.get(layer, [])
        for index, edit in several[bisect_left(several, first, key=_lane_of) :]:
            if index >= last:
                break
            view.edits.setdefault(edit.component, []).append((index - first, edit))
        return view

    def _call(self, view: View, layer: int) -> None:
        self.stream[view.rows] = self._block(view, layer, self.stream[view.rows])

    def _block(self, view: View, layer: int, hidden: Tensor) -> Tensor:
        """One block of the model on the rows of a view."""
        self.view, self.hidden = view, hidden
        arguments: dict[str, Any] = {"hidden_states": hidden[None]}
        for name, value in self.base.arguments[layer].items():
            if name == "attention_mask" or name in _CACHES:
                value = None
            elif name == "use_cache":
                value = False
            elif name == "position_embeddings" and value is not None:
                value = tuple(part[:1, view.position] for part in value)
            elif name in ("position_ids", "cache_position") and value is not None:
                value = value[..., :1, :][..., view.position] if value.ndim > 1 else view.position
            arguments[name] = value
        out = self.parts.blocks[layer](**arguments)
        return (out if torch.is_tensor(out) else out[0])[0]

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float,
        softcap: float | None,
    ) -> Tensor:  # fmt: skip
        """Attention of the rows of the view that is being run (see `attention`)."""
        return attention(self.view, layer, q, k, v, scale, softcap, self.base, self.editor)[None]

    def _edit_inside(self, component: str, layer: int, value: Tensor) -> None:
        """Edit a site within a block, in place, as the module computes it."""
        if component == "resid_mid" and component in self.view.edits:
            # The stream between attention and MLP moves by what attention adds to it.
            middle = self.hidden + value
            self.editor.edit_rows(component, middle, self.view)
            value.copy_(middle - self.hidden)
        else:
            self.editor.edit_rows(component, value, self.view)


def _lane_of(numbered: tuple[int, Edit]) -> int:
    return numbered[0]
