"""Which activations carry the answer? Maps of activation patching over layers, positions, heads.

Method: Meng et al. 2022 (arXiv:2202.05262), Wang et al. 2022 (arXiv:2211.00593), and Heimersheim &
Nanda 2024 (arXiv:2404.15255) on how to read it.

Beside `run`, the functions of ``transformer_lens.patching`` are here under their own names.
"""

from pathlib import Path
from typing import Any, Literal

from transformer_lens.patching import (
    PatchingResult,
    layer_head_dest_src_pos_pattern_patch_setter,
    layer_head_pattern_patch_setter,
    layer_head_pos_pattern_patch_setter,
    layer_head_vector_patch_setter,
    layer_pos_head_vector_patch_setter,
    layer_pos_patch_setter,
    make_df_from_ranges,
)

from tlkit.engine.run import run as run_sweep
from tlkit.engine.values import Progress
from tlkit.errors import SpecError
from tlkit.spec.interventions import Patch
from tlkit.spec.metrics import LogitDiff
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Sweep
from tlkit.studies.act_patch import (
    generic_activation_patch,
    get_act_patch_attn_head_k_all_pos,
    get_act_patch_attn_head_k_by_pos,
    get_act_patch_attn_head_out_all_pos,
    get_act_patch_attn_head_out_by_pos,
    get_act_patch_attn_head_pattern_all_pos,
    get_act_patch_attn_head_pattern_by_pos,
    get_act_patch_attn_head_pattern_dest_src_pos,
    get_act_patch_attn_head_q_all_pos,
    get_act_patch_attn_head_q_by_pos,
    get_act_patch_attn_head_v_all_pos,
    get_act_patch_attn_head_v_by_pos,
    get_act_patch_attn_out,
    get_act_patch_mlp_out,
    get_act_patch_resid_mid,
    get_act_patch_resid_pre,
)
from tlkit.studies.act_patch_every import (
    get_act_patch_attn_head_all_pos_every,
    get_act_patch_attn_head_by_pos_every,
    get_act_patch_block_every,
)
from tlkit.studies.direct_path import (
    get_act_patch_direct_path,
    get_act_patch_direct_path_all_sources,
)
from tlkit.studies.maps import second_axis

__all__ = [
    "PatchingResult",
    "generic_activation_patch",
    "get_act_patch_attn_head_all_pos_every",
    "get_act_patch_attn_head_by_pos_every",
    "get_act_patch_attn_head_k_all_pos",
    "get_act_patch_attn_head_k_by_pos",
    "get_act_patch_attn_head_out_all_pos",
    "get_act_patch_attn_head_out_by_pos",
    "get_act_patch_attn_head_pattern_all_pos",
    "get_act_patch_attn_head_pattern_by_pos",
    "get_act_patch_attn_head_pattern_dest_src_pos",
    "get_act_patch_attn_head_q_all_pos",
    "get_act_patch_attn_head_q_by_pos",
    "get_act_patch_attn_head_v_all_pos",
    "get_act_patch_attn_head_v_by_pos",
    "get_act_patch_attn_out",
    "get_act_patch_block_every",
    "get_act_patch_direct_path",
    "get_act_patch_direct_path_all_sources",
    "get_act_patch_mlp_out",
    "get_act_patch_resid_mid",
    "get_act_patch_resid_pre",
    "layer_head_dest_src_pos_pattern_patch_setter",
    "layer_head_pattern_patch_setter",
    "layer_head_pos_pattern_patch_setter",
    "layer_head_vector_patch_setter",
    "layer_pos_head_vector_patch_setter",
    "layer_pos_patch_setter",
    "make_df_from_ranges",
    "run",
    "sweep",
]


def sweep(
    model: Any,
    prompts: Any,
    site: str = "resid_pre",
    *,
    by: Literal["positions", "heads"] | None = None,
    on: Literal["clean", "corrupted"] = "corrupted",
) -> Sweep:
    """The sweep that draws a map: every layer, at every position or for every head.

    Args:
        model: A loaded model.
        prompts: Pairs (`tk.Prompts.from_pairs`).
        site: What is patched (see `tk.Site`).
        by: Second axis; heads for ``z``, ``q``, ``k``, ``v`` and ``pattern``, else positions.
        on: The run that is changed; the other one is the source.

    Raises:
        SpecError: The site has no such axis, or the prompts are no pairs.
    """
    if prompts.corrupted is None:
        raise SpecError("Patching needs pairs: make them with tk.Prompts.from_pairs.")
    axis = second_axis(site, by)
    source = "clean" if on == "corrupted" else "corrupted"
    axes: dict[str, Any] = {"layer": range(model.cfg.n_layers)}
    if site == "embed":
        del axes["layer"]
    if axis == "head":
        grouped = model.cfg.n_key_value_heads if site in ("k", "v") else None
        axes["head"] = range(grouped or model.cfg.n_heads)
    else:
        axes["pos"] = range(max(len(ids) for ids in getattr(prompts, on)))
    return Sweep(Patch(Site(site), source=source), **axes)


def run(
    model: Any,
    prompts: Any,
    site: str = "resid_pre",
    metrics: Any = None,
    *,
    by: Literal["positions", "heads"] | None = None,
    on: Literal["clean", "corrupted"] = "corrupted",
    engine: str = "packed",
    store: str | Path | None = None,
    overwrite: bool = False,
    budget: int | str | None = None,
    audit: float = 0.0,
    top: int | None = None,
    remainder: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    executor: Any = None,
) -> Any:
    """Patch a site in every layer, at every position or for every head.

    Args:
        model: A loaded model.
        prompts: Pairs (`tk.Prompts.from_pairs`).
        site: What is patched (see `tk.Site`).
        metrics: What is measured; `tk.LogitDiff()` if None.
        by: Second axis (see `sweep`).
        on: ``"corrupted"``: the clean run's activation is put into the corrupted run (denoising);
            ``"clean"``: the other way round (noising).
        engine: See `tk.run`, as are ``store``, ``budget``, ``audit``, ``seed`` and ``progress``.
        store: Where the run is kept.
        overwrite: Whether another run's store is replaced.
        budget: Memory for the engine.
        audit: Share that the reference engine runs again.
        top: How many of the largest estimates ``engine="verified"`` runs, and ``remainder``: how
            many of the others (see `tk.run`).
        remainder: See ``top``.
        seed: Chooses what is audited and drawn.
        progress: Called with (done, total).
        executor: `tk.Ray` for workers on many machines (see `tk.run`).

    Returns:
        The dataset of `tk.run`, with ``attrs["study"] == "patching"`` and ``attrs["site"]``.
    """
    return run_sweep(
        model, prompts, sweep(model, prompts, site, by=by, on=on), metrics or LogitDiff(),
        on=on, engine=engine, store=store, overwrite=overwrite, budget=budget, audit=audit, top=top,
        remainder=remainder, seed=seed, progress=progress, study="patching",
        executor=executor,
    )  # fmt: skip
