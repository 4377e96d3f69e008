"""LoRA adapters: checked against their base by shape, then merged into its weights."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tlkit.errors import SpecError
from tlkit.models.validate import read_json, read_safetensors

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

_PREFIX = "base_model.model."


def check_adapter(folder: Path, skeleton: "torch.nn.Module", source: str) -> None:
    """Check that a folder holds a LoRA adapter that fits a model.

    Args:
        folder: Where the adapter is.
        skeleton: The model, without memory for its weights.
        source: What the model is called in messages.

    Raises:
        SpecError: It is missing, no LoRA, damaged, or made for another base.
    """
    if not folder.is_dir():
        raise SpecError(f"There is no adapter folder {folder}.")
    if not (folder / "adapter_config.json").is_file():
        raise SpecError(f"{folder} is not an adapter: it has no adapter_config.json.")
    settings = read_json(folder / "adapter_config.json")
    if str(settings.get("peft_type", "")).upper() != "LORA":
        raise SpecError(
            f"{folder} is an adapter of type {settings.get('peft_type')}; only LoRA can be merged."
        )
    weights = folder / "adapter_model.safetensors"
    if weights.is_file():
        _check_shapes(read_safetensors(weights), skeleton, folder, source, settings)
    elif not (folder / "adapter_model.bin").is_file():
        raise SpecError(f"{folder} has an adapter_config.json but no adapter_model.safetensors.")


def _check_shapes(
    shapes: dict[str, tuple[int, ...]],
    skeleton: "torch.nn.Module",
    folder: Path,
    source: str,
    settings: dict[str, Any],
) -> None:
    modules = dict(skeleton.named_modules())
    base = settings.get("base_model_name_or_path") or "another model"
    for name, shape in shapes.items():
        module, matrix, _ = name.removeprefix(_PREFIX).rpartition(".lora_")
        if not matrix or name.endswith(("embedding_A", "embedding_B", "magnitude_vector")):
            continue
        wrong = f"{folder} does not fit {source}: it was made for {base}, "
        weight = getattr(modules.get(module), "weight", None)
        if weight is None:
            raise SpecError(f"{wrong}and there is no {module} here.")
        width = shape[1] if name.endswith("A.weight") else shape[0]
        if width not in weight.shape:
            raise SpecError(
                f"{wrong}whose {module} is {width} wide, where it is "
                f"{' x '.join(map(str, weight.shape))} here."
            )


def merge_adapter(model: "PreTrainedModel", folder: Path, source: str) -> "PreTrainedModel":
    """Add a LoRA adapter's product of matrices to the weights, as peft does.

    Returns:
        The same model, of its own class, with changed weights.

    Raises:
        SpecError: peft cannot put the adapter on this model.
    """
    from peft import PeftModel

    try:
        return PeftModel.from_pretrained(model, str(folder)).merge_and_unload(safe_merge=True)
    except (ValueError, RuntimeError, KeyError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise SpecError(
            f"The adapter {folder} cannot be merged into {source}: {reason[0]}"
        ) from error
