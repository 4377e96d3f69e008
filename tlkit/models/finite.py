"""Weights that are NaN or infinite, which would make every number NaN without a word."""

from typing import TYPE_CHECKING

from tlkit.errors import SpecError

if TYPE_CHECKING:
    import torch


def check_finite(model: "torch.nn.Module", source: str) -> None:
    """Refuse a model with weights that are no numbers.

    Raises:
        SpecError: There are some.
    """
    import torch

    wrong = []
    for name, weight in model.named_parameters():
        # The sum is a quick look: it is finite only if all are, and may itself overflow.
        if weight.is_meta or bool(torch.isfinite(weight.detach().sum())):
            continue
        count = int((~torch.isfinite(weight.detach())).sum())
        if count:
            wrong.append(f"{count:,} of the {weight.numel():,} numbers of {name}")
    if wrong:
        more = f", and some in {len(wrong) - 1} further tensors" if len(wrong) > 1 else ""
        raise SpecError(
            f"{source} has weights that are NaN or infinite: {wrong[0]}{more}; the file is "
            f"damaged, its training broke down, or its dtype is too narrow (bfloat16 reaches as "
            f"far as float32)."
        )
