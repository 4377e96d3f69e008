"""How much memory a model's weights take, and how much there is."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tlkit.errors import SpecError

if TYPE_CHECKING:
    import torch

_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)
_STATISTICS = ("/sys/fs/cgroup/memory.stat", "/sys/fs/cgroup/memory/memory.stat")
MOST_LAYERS = 1_000
"""Blocks; the deepest models that are known have some 200."""
MARGIN = 1.1  # buffers, the tokenizer and what loading holds for a moment


def _container_room() -> int | float:
    """Bytes that a container's limit leaves, page cache that can be dropped counted as free."""
    for (limit, used), statistics in zip(_CGROUPS, _STATISTICS, strict=True):
        try:
            most = Path(limit).read_text(encoding="ascii").strip()
            room = float("inf") if most == "max" else int(most) - int(Path(used).read_text())
            lines = Path(statistics).read_text(encoding="ascii").splitlines()
        except (OSError, ValueError):
            continue
        cached = [int(line.split()[1]) for line in lines if line.split()[0] == "inactive_file"]
        return room + sum(cached)
    return float("inf")


def available_memory(device: str = "cpu") -> int | float:
    """Find the memory that a model may still take.

    Args:
        device: "cpu", or a GPU such as "cuda:0".

    Returns:
        Bytes.
    """
    if device.startswith("cuda"):
        import torch

        return torch.cuda.mem_get_info(torch.device(device))[0]
    import psutil

    return min(psutil.virtual_memory().available, _container_room())


def on_meta(config: Any, trust_remote_code: bool = False) -> "torch.nn.Module":
    """Build a model without memory for its weights, to ask it for shapes and sizes.

    Raises:
        SpecError: The config describes no model, or one of absurd depth, whose modules alone
            would fill the memory.
    """
    import torch
    from transformers import AutoModelForCausalLM

    layers = getattr(config.get_text_config(), "num_hidden_layers", 1)
    if not isinstance(layers, int) or not 0 < layers <= MOST_LAYERS:
        raise SpecError(
            f"The config says that the model has {layers!r} layers; it is damaged, or is meant to "
            f"do harm (most that is taken: {MOST_LAYERS:,})."
        )
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    except Exception as error:  # transformers raises whatever a strange value runs into
        said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise SpecError(f"The config describes no model that can be built: {said}.") from error


def weight_bytes(skeleton: "torch.nn.Module", dtype: "torch.dtype") -> int:
    """Count what a model's weights take in a type, tied ones once.

    Returns:
        Bytes.
    """
    return sum(weight.numel() for weight in skeleton.parameters()) * dtype.itemsize


def check_memory(source: str, needed: int | float, dtype: "torch.dtype", device: str) -> None:
    """Refuse a model that would not fit, before loading it.

    Raises:
        SpecError: The weights with a margin take more than is available.
    """
    needed, free = needed * MARGIN, available_memory(device)
    if needed <= free:
        return
    half = "" if dtype.itemsize <= 2 else "dtype='bfloat16' (half of that), "
    raise SpecError(
        f"{source} needs about {needed / 1e9:.3g} GB in {str(dtype).removeprefix('torch.')} and "
        f"{free / 1e9:.3g} GB are free on {device}; try {half}a smaller model or another machine."
    )
