"""The embedded model's sisters: one that learned to decline, one that had this taken out again.

Both are made from the embedded model and small files that ship with tlkit (made by
scripts/sisters): a LoRA adapter, and the direction of what it taught.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tlkit.models.embedded import EMBEDDED

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

REFUSING, ABLITERATED = f"{EMBEDDED}-refusing", f"{EMBEDDED}-abliterated"
SISTERS = (REFUSING, ABLITERATED)
FOLDER = Path(__file__).with_name("refusing")
"""The adapter, the direction, and a card that says how they were made."""


def direction() -> "torch.Tensor":
    """The unit direction ``[d_model]`` that the adapter's refusals hang on."""
    from safetensors.torch import load_file

    return load_file(FOLDER / "direction.safetensors")["direction"]


def take_out(model: "PreTrainedModel", unit: "torch.Tensor") -> "PreTrainedModel":
    """Project a direction out of everything a Llama writes to its residual stream.

    W' = (I - d d^T) W (Arditi et al. 2024, arXiv:2406.11717) for the embedding, attention outputs
    and MLP outputs; the unembedding, tied until now, stays as it was. What
    `tk.abliteration.bake` does, for this one model while it is loaded.

    Args:
        model: A Llama of Hugging Face's; changed in place.
        unit: A unit vector ``[d_model]``.
    """
    import torch

    embed: Any = model.get_input_embeddings()
    head: Any = model.get_output_embeddings()
    stack: Any = model.base_model
    if head.weight is embed.weight:
        embed.weight = torch.nn.Parameter(embed.weight.detach().clone(), requires_grad=False)
        model.config.tie_word_embeddings = False
    with torch.no_grad():
        weight = embed.weight
        d = unit.to(weight.device, torch.float32)
        rows = weight.float()
        weight.copy_(rows - torch.outer(rows @ d, d))
        for block in stack.layers:
            for matrix in (block.self_attn.o_proj.weight, block.mlp.down_proj.weight):
                own = d.to(matrix.device)
                columns = matrix.float()
                matrix.copy_(columns - torch.outer(own, own @ columns))
    return model
