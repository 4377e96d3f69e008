"""In bfloat16 the engines stay within 1 % of a metric's range of each other.

Or within one rounding of a logit: these models' logits lie between 2 and 4 and their differences in
a range of 1, so that a single rounding of the last matrix is more than 1 % already.
"""

import numpy as np
import pytest

from tlkit.checks.samples import sample_pairs
from tlkit.checks.twins import compare
from tlkit.models.bridge import Parts
from tlkit.models.load import HookedTransformer
from tlkit.spec.attention import Knockout
from tlkit.spec.interventions import Ablate, Patch
from tlkit.spec.metrics import LogitDiff
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Sweep

ROUNDING = 2**-6
"""Between neighbouring bfloat16 numbers from 2 to 4."""

SWEEPS = {
    "stream": Sweep(Patch(Site("resid_pre")), layer=range(3), pos=range(14)),
    "attention": Sweep(Patch(Site("attn_out")), layer=range(3), pos=range(14)),
    "heads": Sweep(Patch(Site("z")), layer=range(3), head=range(4)),
    "ablations": Sweep(Ablate(Site("z")), layer=range(3), head=range(4)),
    "cuts": Sweep(Knockout(keys=(1, 2)), layers=range(3), mode=("zero", "-inf")),
}


@pytest.fixture(scope="module", params=["llama3", "gptj", "gemma3", "gpt2"])
def model(request):
    return HookedTransformer.from_pretrained(
        f"tiny:{request.param}", dtype="bfloat16", device="cpu"
    )


@pytest.mark.parametrize("name", SWEEPS)
def test_within_one_percent_of_the_range(model, name):
    prompts = sample_pairs(Parts(model), seed=0)
    found = compare(model, prompts, SWEEPS[name], LogitDiff())
    values = found.reference["value"].values
    both = [values, found.reference["clean"].values, found.reference["corrupted"].values]
    spread = max(np.nanmax(one) for one in both) - min(np.nanmin(one) for one in both)
    assert found.packed.attrs["engine"] == "packed"
    assert found.packed.attrs["dtype"] == "bfloat16"
    allowed = max(0.01 * spread, ROUNDING)
    assert found.gap <= allowed
    top = np.nanargmax(np.abs(found.packed["effect"].values))
    effects = np.abs(found.reference["effect"].values)
    assert effects.ravel()[top] >= np.nanmax(effects) - allowed
