"""Activations of prompts at every layer, streamed to disk a batch of prompts at a time."""

import hashlib
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tlkit.engine.packed_values import DEFAULT_BUDGET
from tlkit.engine.route import route_of
from tlkit.engine.sequences import Sequences
from tlkit.engine.states import states
from tlkit.errors import SpecError, warn
from tlkit.models.bridge import Parts
from tlkit.models.info import info
from tlkit.prompts.prompts import Prompts
from tlkit.results.disk import writing

Progress = Callable[[int, int], None]
FEATURES = ("cp", "last", "mean")
BATCH = 16
"""Prompts that are read at once: what is held in memory, and a chunk on disk."""


class Activations:
    """One model's activations in a zarr group, a batch of prompts after another.

    Each site is an array ``[layer, prompt, place, d_model]``, float32. For ``features="cp"`` the
    places are the last tokens of a prompt, shorter prompts padded with zeros in front; else there
    is one place: the last token, or the mean over all tokens of the prompt.

    Args:
        folder: Where the group lies, or is to be made.
        model: A loaded model.
        prompts: `tk.Prompts`.
        sites: Components, such as ``"resid_post"``.
        features: ``"cp"``, ``"last"`` or ``"mean"``.
        last_tokens: How many tokens ``"cp"`` keeps of a prompt.

    Raises:
        SpecError: The model lacks a site, a prompt is longer than the model was made for, or the
            folder holds activations of something else.
    """

    def __init__(
        self, folder: Path, model: Any, prompts: Prompts, sites: Sequence[str], features: str,
        last_tokens: int,
    ) -> None:  # fmt: skip
        self.parts, self.prompts, self.sites = Parts(model), prompts, tuple(sites)
        self.features, self.folder = features, folder
        self.lengths = [len(ids) for ids in prompts.clean]
        self.places = min(last_tokens, max(self.lengths)) if features == "cp" else 1
        for site in self.sites:
            reason = self.parts.unsupported(site)
            if reason:
                raise SpecError(f"{self.parts.name} has no site {site!r}: {reason}.")
        if max(self.lengths) > self.parts.context:
            raise SpecError(
                f"A prompt has {max(self.lengths)} tokens, more than the {self.parts.context} for "
                f"which {self.parts.name} was made; leave it out."
            )
        self._arrays = self._opened(model)

    def _opened(self, model: Any) -> Any:
        """The group, made if it is not there yet."""
        import zarr

        key = self._key(model)
        if not (self.folder / "zarr.json").exists():
            if self.folder.exists() and any(self.folder.iterdir()):
                raise SpecError(
                    f"{self.folder} holds other files; give the store a folder of its own."
                )
            self.folder.mkdir(parents=True, exist_ok=True)
            group = zarr.create_group(self.folder, attributes={"key": key, "done": 0, "sums": {}})
            shape = (self.parts.n_layers, len(self.prompts), self.places, self.parts.d_model)
            chunk = (1, min(BATCH, shape[1]), *shape[2:])
            for site in self.sites:
                group.create_array(site, shape=shape, chunks=chunk, dtype="float32")
            return group
        try:
            group = zarr.open_group(self.folder, mode="r+")
            kept = group.attrs.get("key")
        except Exception as error:  # zarr raises whatever the damaged part runs into
            raise SpecError(
                f"{self.folder} is damaged and cannot be read ({type(error).__name__}): delete it."
            ) from error
        if kept != key:
            raise SpecError(_difference(self.folder, kept, key))
        return group

    def _key(self, model: Any) -> dict[str, str]:
        """Everything that the numbers depend on."""
        about = info(model)
        return {
            "model": about.weight_hash, "tokenizer": about.tokenizer_hash, "dtype": about.dtype,
            "prompts": self.prompts.hash(), "sites": ", ".join(self.sites),
            "features": self.features, "places": str(self.places),
        }  # fmt: skip

    @property
    def done(self) -> int:
        """Prompts whose activations are there."""
        return int(self._arrays.attrs["done"])

    @property
    def _sums(self) -> dict[str, int]:
        """A checksum for each batch that is there; older stores have none and are read again."""
        return dict(self._arrays.attrs.get("sums", {}))  # type: ignore[arg-type]

    def fill(self, progress: Progress | None = None) -> None:
        """Run the model on the prompts that are not there yet.

        Args:
            progress: Called with (prompts done, prompts in all).
        """
        count = len(self.prompts)
        damaged = [first for first in range(0, self.done, BATCH) if not self._is_sound(first)]
        if damaged:
            warn(
                f"{self.folder} was damaged: the activations of {len(damaged)} batches of prompts "
                f"are not what was kept, and are read again."
            )
        with writing(self.folder, "What was finished before is kept."):
            for first in damaged:
                self._fill(first, min(self.done, first + BATCH))
            while self.done < count:
                self._fill(self.done, min(count, self.done + self._step()))
                if progress:
                    progress(self.done, count)

    def _fill(self, first: int, last: int) -> None:
        """Run the model on prompts, and keep what it gives with a checksum for each batch."""
        values, sums = self._read(self.prompts[first:last]), dict(self._sums)
        for start in range(first, last, BATCH):
            stop = min(last, start + BATCH)
            own = {site: rows[:, start - first : stop - first] for site, rows in values.items()}
            for site, rows in own.items():
                self._arrays[site][:, start:stop] = rows
            sums[str(start)] = _checksum(own)
        # After the values: what is counted is there.
        self._arrays.attrs.update({"sums": sums, "done": max(last, self.done)})

    def _is_sound(self, first: int) -> bool:
        """Whether a batch on disk is what was written there."""
        last = min(self.done, first + BATCH)
        try:
            found = {site: np.asarray(self._arrays[site][:, first:last]) for site in self.sites}
        except Exception:  # zarr raises whatever the damaged part runs into
            return False
        return self._sums.get(str(first)) == _checksum(found)

    def _step(self) -> int:
        """Prompts at once: a chunk on disk, or many of them where each pass reads all weights."""
        if not self.parts.streamed:
            return BATCH
        size = 4 * self.parts.n_layers * len(self.sites) * self.places * self.parts.d_model
        return BATCH * max(1, DEFAULT_BUDGET // 4 // (BATCH * size))

    def _read(self, prompts: Prompts) -> dict[str, np.ndarray]:
        """``[layer, prompt, place, d_model]`` per site."""
        layers = range(self.parts.n_layers)
        kept = {"cp": self.places, "last": 1}.get(self.features)
        spans = [range(max(0, len(ids) - (kept or len(ids))), len(ids)) for ids in prompts.clean]
        found = states(
            self.parts, Sequences(prompts, "clean"), [tuple(span) for span in spans],
            [(site, layer) for site in self.sites for layer in layers], {},
            packed=route_of(self.parts).packed,
        )["base"]  # fmt: skip
        shape = (len(layers), len(prompts), self.places, self.parts.d_model)
        values = {site: np.zeros(shape, np.float32) for site in self.sites}
        for (site, layer), rows in found.items():
            for i, row in enumerate(rows):
                x = row.float().cpu().numpy()
                if self.features == "mean":
                    x = x.mean(0, keepdims=True)
                values[site][layer, i, self.places - len(x) :] = x
        return values

    def layer(self, site: str, layer: int) -> np.ndarray:
        """One layer of a site, ``[prompt, place, d_model]``, read from disk."""
        return np.asarray(self._arrays[site][layer])


def _checksum(values: dict[str, np.ndarray]) -> int:
    """The CRC-32 of all sites' values."""
    total = 0
    for site in sorted(values):
        total = zlib.crc32(np.ascontiguousarray(values[site]).tobytes(), total)
    return total


def folder_of(store: Path, name: str) -> Path:
    """Where a store keeps the model of a name: readable, and apart from every other name."""
    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)[-60:]
    return store / f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}.zarr"


def _difference(folder: Path, kept: Any, wanted: dict[str, str]) -> str:
    """Say what a store was made of that is not what is asked now."""
    if not isinstance(kept, dict):
        return f"{folder} was not made by layer probes; give another store."
    other = [name for name in wanted if kept.get(name) != wanted[name]]
    told = [
        f"{name} ({kept.get(name)}, not {wanted[name]})"
        if name in ("dtype", "sites", "features", "places") else name
        for name in other
    ]  # fmt: skip
    return (
        f"The store {folder} was made with another {' and '.join(told)}; give another store, or "
        f"delete this one."
    )


def bytes_on_disk(
    parts: Parts, lengths: Sequence[int], sites: int, features: str, last_tokens: int
) -> int:
    """Bytes of a full store, before zarr's compression."""
    places = min(last_tokens, max(lengths)) if features == "cp" else 1
    return 4 * parts.n_layers * sites * len(lengths) * places * parts.d_model
