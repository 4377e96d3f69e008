"""Direct path patching: one head's output put into one later head's queries, keys or values.

Method: Wang et al. 2022 (arXiv:2211.00593); names, arguments and returns of TransformerLens.
"""

import warnings
from collections.abc import Iterator
from typing import Any, cast

import torch
import transformer_lens.patching as tl
from jaxtyping import Float
from torch import Tensor

from tlkit.engine.edits import Edit, Worked
from tlkit.engine.projections import projection
from tlkit.engine.record import Run, record
from tlkit.engine.route import route_of
from tlkit.engine.sequences import Sequences
from tlkit.engine.values import Job
from tlkit.engine.whole_batch import WholeBatch
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.spec.sites import Site
from tlkit.studies.act_patch_cells import Put
from tlkit.studies.act_patch_inputs import Inputs
from tlkit.studies.act_patch_metrics import Metrics


def get_act_patch_direct_path(
    model: Any,
    corrupted_tokens: Any,
    clean_cache: Any,
    corrupted_cache: Any,
    patching_metric: Any,
    src_layer: int,
    src_head: int,
    component: str = "q",
    verbose: bool = True,
) -> Float[Tensor, "layer head"]:
    """Patch the path from one head into each later head's queries, keys or values.

    What the source head writes in the clean run minus what it writes in the corrupted one is
    added, at every position, to the stream that this one destination reads; everything else
    reads the corrupted stream.

    Args:
        model: A TransformerLens bridge in eval mode.
        corrupted_tokens: Token ids ``[batch, pos]``.
        clean_cache: Cache of the clean run, with the source layer's ``hook_z``.
        corrupted_cache: Cache of the corrupted run, with the same.
        patching_metric: A function of logits that returns a number; see
            `generic_activation_patch` on what it may declare.
        src_layer: Layer of the source head.
        src_head: The source head.
        component: What of the destination is patched: ``"q"``, ``"k"`` or ``"v"``.
        verbose: Taken as TransformerLens takes it; there is no progress bar to hide.

    Returns:
        Values ``[layer, head]`` of the destinations; 0 up to and with the source's layer, where
        there is no path.

    Raises:
        SpecError: The heads do not exist, their outputs do not reach the stream as they are, or
            keys and values are shared by several heads.
    """
    paths = _Paths(
        model, corrupted_tokens, clean_cache, corrupted_cache, patching_metric, component
    )
    paths.check([src_layer], src_head)
    if paths.obstacle:
        _say(paths.obstacle)
        return tl.get_act_patch_direct_path(
            model, corrupted_tokens, clean_cache, corrupted_cache, patching_metric, src_layer,
            src_head, cast(Any, component), verbose,
        )  # fmt: skip
    return paths.values(src_layer, src_head)


def get_act_patch_direct_path_all_sources(
    model: Any,
    corrupted_tokens: Any,
    clean_cache: Any,
    corrupted_cache: Any,
    patching_metric: Any,
    component: str = "q",
    verbose: bool = True,
) -> Float[Tensor, "layer head layer head"]:
    """Patch the paths from every head (see `get_act_patch_direct_path`).

    Returns:
        Values ``[layer, head, layer, head]``, source before destination.
    """
    paths = _Paths(
        model, corrupted_tokens, clean_cache, corrupted_cache, patching_metric, component
    )
    paths.check(range(model.cfg.n_layers), 0)
    if paths.obstacle:
        _say(paths.obstacle)
        return tl.get_act_patch_direct_path_all_sources(
            model, corrupted_tokens, clean_cache, corrupted_cache, patching_metric,
            cast(Any, component), verbose,
        )  # fmt: skip
    return torch.stack([
        torch.stack([paths.values(layer, head) for head in range(model.cfg.n_heads)])
        for layer in range(model.cfg.n_layers)
    ])  # fmt: skip


class _Paths:
    """Checked inputs, and the corrupted run that all sources share."""

    def __init__(
        self, model: Any, tokens: Any, clean: Any, corrupted: Any, metric: Any, component: str
    ) -> None:
        if component not in ("q", "k", "v"):
            raise SpecError(f"component={component!r} is not known; use 'q', 'k' or 'v'.")
        self.inputs = Inputs(model, tokens, clean)
        self.theirs = Inputs(model, tokens, corrupted)
        self.parts: Parts = self.inputs.parts
        self.metrics = Metrics(metric, "scalar", self.inputs.batch, self.inputs.length).metrics()
        self.component = component
        route = route_of(self.parts)
        self.obstacle = "" if route.packed else route.reason
        self._base: Run | None = None

    def check(self, layers: Any, head: int) -> None:
        """Refuse sources whose output is not added to the stream as it is, and shared keys.

        Raises:
            SpecError: With the reason.
        """
        parts = self.parts
        for layer in layers:
            if not 0 <= layer < parts.n_layers or not 0 <= head < parts.n_heads:
                raise SpecError(
                    f"There is no head {layer}.{head}; layers are 0 to {parts.n_layers - 1}, heads "
                    f"0 to {parts.n_heads - 1}."
                )
            writes = parts.slot("attn_out", layer).module
            block = parts.bridge.blocks[layer]
            if (
                writes not in list(parts.attentions[layer].modules())
                or getattr(block, "residual_contribution_scale", 1.0) != 1.0
            ):
                raise SpecError(
                    f"{parts.name} norms or scales what attention adds to the stream, so that a "
                    f"head's part of it is not its own; patch attn_out or z instead."
                )
        if self.component != "q" and parts.n_kv_heads != parts.n_heads:
            raise SpecError(
                f"{parts.name} shares {parts.n_kv_heads} key/value heads among {parts.n_heads} "
                f"heads, so no head has a {self.component!r} of its own; use component='q'."
            )

    def values(self, layer: int, head: int) -> Tensor:
        """Values of the paths from one head, ``[layer, head]``."""
        parts, place = self.parts, ("z", layer)
        sequences = Sequences(self.inputs.prompts({place}), "corrupted")
        difference = (self.inputs.clean(*place) - self.theirs.clean(*place))[:, :, head]
        weight = parts.bridge.blocks[layer].attn.W_O[head]
        if self._base is None:
            self._base = record(parts, self.inputs.tokens.tolist())
        jobs = list(self._jobs(layer, difference @ weight.to(difference), sequences, self._base))
        engine = WholeBatch(
            parts, sequences, self.metrics, jobs, self.inputs.captured, base=self._base
        )
        cells, _ = engine.measure(parts.n_layers * parts.n_heads)
        found = torch.stack([cell[0] for cell in cells]).unflatten(0, (parts.n_layers, -1))
        found[: layer + 1] = 0.0
        return found.to(parts.bridge.cfg.device)

    def _jobs(self, layer: int, write: Tensor, sequences: Sequences, base: Run) -> Iterator[Job]:
        """One per later head and example whose source differs."""
        parts, component = self.parts, self.component
        for later in range(layer + 1, parts.n_layers):
            put = projection(parts, base, later, component, base.stream[later] + write)
            for head in range(parts.n_heads):
                for example, first in enumerate(sequences.first_difference):
                    where = tuple(range(first, self.inputs.length))
                    if where:
                        one = Put(
                            Site(component, layer=later, head=head), put[example, first:, head]
                        )
                        edit = Edit(one, component, later, where, (), None, head)
                        cell = later * parts.n_heads + head
                        yield Job(cell, example, Worked((edit,), "run"))


def _say(reason: str) -> None:
    warnings.warn(f"Patching makes one full pass per path: {reason}.", stacklevel=3)
