"""Which tensor of a checkpoint is which weight of a model, as transformers would have it."""

from typing import Any

import torch
from torch import Tensor

from tlkit.errors import SpecError
from tlkit.models.weight_files import WeightFiles


class Names:
    """Finds weights' tensors by the renamings that transformers knows for a model.

    Args:
        model: The model, its weights on the meta device.
        files: Its checkpoint.
        dtype: The type asked for.
        label: What the model is called in messages.

    Raises:
        SpecError: Tensors of the checkpoint must be joined or rearranged to become weights.
    """

    def __init__(self, model: Any, files: WeightFiles, dtype: torch.dtype, label: str) -> None:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightRenaming, rename_source_key

        self.files, self.label, self.family = files, label, type(model).__name__
        self._types = _Types(model, dtype)
        state = model.state_dict()
        mapping = get_model_conversion_mapping(model)
        renamings = [one for one in mapping if isinstance(one, WeightRenaming)]
        others: Any = [one for one in mapping if not isinstance(one, WeightRenaming)]
        self._keys: dict[str, str] = {}
        for key in files.names:
            name, rearranged = rename_source_key(
                key, renamings, others, model.base_model_prefix, state
            )
            if name not in state and key in state:
                name, rearranged = key, None
            if rearranged is not None and name in state:
                raise SpecError(
                    f"{label} stores {key}, which a {self.family} joins with others or rearranges "
                    f"while it is loaded, so that it cannot be streamed; leave stream=True out."
                )
            self._keys[name] = key
        # A tied weight is one object under several names, any of which a checkpoint may use.
        self._tied: dict[int, list[str]] = {}
        for name, weight in model.named_parameters(remove_duplicate=False):
            self._tied.setdefault(id(weight), []).append(name)

    def place(self, name: str, weight: Tensor) -> tuple[str, torch.dtype]:
        """A weight's name in the files, and the type that it is read in.

        Raises:
            SpecError: It is not there, has another shape or packed numbers, or two tables are in
                the files where the model has one.
        """
        several = self._tied[id(weight)]
        keys = [self._keys[one] for one in several if one in self._keys]
        if not keys:
            raise SpecError(
                f"{self.label} lacks {name}, a weight that a {self.family} needs; it may be a "
                f"checkpoint of another kind of model."
            )
        for other in keys[1:]:
            if not self._same(keys[0], other):
                raise SpecError(
                    f"{self.label} ties {' and '.join(several)} by its config, and its files hold "
                    f"different ones; set tie_word_embeddings to false in config.json."
                )
        if self.files.shape(keys[0]) != tuple(weight.shape):
            raise SpecError(
                f"{self.label} holds {keys[0]} as {list(self.files.shape(keys[0]))}, and a "
                f"{self.family} needs {list(weight.shape)}; it may be another kind of model."
            )
        self.files.dtype(keys[0])  # refuses what cannot be read as numbers
        return keys[0], self._types.of(name, weight)

    def buffer(self, name: str, buffer: Tensor) -> Tensor:
        """A buffer that the checkpoint holds.

        Raises:
            SpecError: It does not hold it.
        """
        if name not in self._keys:
            raise SpecError(
                f"{self.label} lacks {name}, which a {self.family} needs; it cannot be streamed: "
                f"load it without stream=True."
            )
        out = torch.empty(buffer.shape, dtype=buffer.dtype)
        self.files.fill(self._keys[name], out)
        return out

    def _same(self, one: str, other: str) -> bool:
        """Whether two tensors hold the same numbers, read piece by piece."""
        kinds = [(self.files.shape(key), self.files.dtype(key)) for key in (one, other)]
        if kinds[0] != kinds[1]:
            return False
        pairs = zip(*(self.files.pieces(key, kinds[0][1]) for key in (one, other)), strict=True)
        return all(torch.equal(left, right) for left, right in pairs)


class _Types:
    """The types that transformers loads weights in: some models keep a few in float32."""

    def __init__(self, model: Any, dtype: torch.dtype) -> None:
        from transformers.core_model_loading import build_glob_alternation

        self._plan = model._get_dtype_plan(dtype)
        if self._plan:
            self._pattern, self._groups, _ = build_glob_alternation(list(self._plan))

    def of(self, name: str, weight: Tensor) -> torch.dtype:
        """A weight's type."""
        found = self._pattern.search(name) if self._plan else None
        if found is None or found.lastgroup is None:
            return weight.dtype
        return self._plan[self._groups[found.lastgroup]]
