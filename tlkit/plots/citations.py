"""Whom to cite for a study's method."""

TLKIT = "tlkit: mechanistic interpretability of language models on TransformerLens (CITATION.cff)."
TRANSFORMER_LENS = (
    "TransformerLens: Nanda and Bloom 2022, https://github.com/TransformerLensOrg/TransformerLens."
)
SOURCES = {
    "patching": (
        "Activation patching: Meng et al. 2022, arXiv:2202.05262; "
        "Heimersheim and Nanda 2024, arXiv:2404.15255."
    ),
    "pathways": (
        "ΔP, question- and answer-anchored pathways: Luo et al. 2026, arXiv:2601.07422; attention "
        "knockout: Geva et al. 2023, arXiv:2304.14767."
    ),
    "conditions": "Meaningless tokens: Shi et al. 2025, arXiv:2510.01032.",
    "variance": (
        "Temporal variance: Qin et al. 2025, arXiv:2503.12491; column variance: Wan et al. 2024, "
        "arXiv:2406.13035; rank variance: arXiv:2601.07667."
    ),
    "logit_lens": "Logit lens: nostalgebraist 2020.",
    "direct_logit_attribution": "Direct logit attribution: Elhage et al. 2021.",
    "head_scores": "Induction heads: Olsson et al. 2022, arXiv:2209.11895.",
    "layer_probes": "Layer-wise probes: Kadali and Papalexakis 2026, arXiv:2602.11495.",
    "ablation": "Resample and mean ablation: Wang et al. 2022, arXiv:2211.00593.",
    "abliteration": "Directional ablation: Arditi et al. 2024, arXiv:2406.11717.",
}
_PARTS = {
    "pathways cuts": "pathways",
    "pathways probes": "pathways",
    "pathways awareness": "pathways",
    "pathways boundary": "pathways",
    "pathways saliency": "pathways",
    "changed heads": "conditions",
    "condition lines": "conditions",
    "variance by layer": "variance",
    "variance difference": "variance",
}


def citations(studies: list[str]) -> list[str]:
    """What to cite for these studies, tlkit and TransformerLens first, each once."""
    named = dict.fromkeys(_PARTS.get(study, study) for study in studies)
    return [TLKIT, TRANSFORMER_LENS, *(SOURCES[name] for name in named if name in SOURCES)]
