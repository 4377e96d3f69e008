"""``tlkit demo``: the whole way, from the embedded model to a page that explains itself."""

import time
from pathlib import Path
from typing import Any

from tlkit.cli.exits import keeping
from tlkit.cli.options import (
    DeviceOption,
    DtypeOption,
    JsonOption,
    ModelOption,
    OutOption,
    OverwriteOption,
    SeedOption,
    StreamOption,
    check_device,
    check_out,
)
from tlkit.cli.output import Output
from tlkit.errors import SpecError

KINDS = {
    "ioi": "Who gets it? Indirect objects",
    "facts": "What is it? Facts",
}
INTRODUCTION = """Each map asks where a small language model keeps its answer. The model reads two
prompts that differ in a word and have different answers; one activation of the first run is put
into the second, and the map shows how far the answer comes back: 0 is the second prompt's answer,
1 the first one's. Every cell is an exact run, not an estimate."""
QUESTIONS = 120
"""How many of our questions are asked: enough for groups, few enough for a demo."""
LAYERS = 4
"""About how many layers the intervention reading looks at."""
PATHWAYS = """The model answers questions, and probes read off whether an answer is right. Then the
question's subject is cut off from everything behind it: where the verdict turns, it was drawn from
the question (Q-anchored), where it stays, from the answer (A-anchored). ΔP is the change of the
verdict's probability, in percentage points. The second reading needs no probes: it cuts and patches
at question and answer, and watches the probability of the answer itself. A model of this size
answers about half of such questions; read the bands."""
READING = {
    "resid_pre": """The residual stream entering each layer, at each token. Early layers carry the
answer at the word that differs; in the middle it moves to the last token, where it is said.""",
    "z": """Each attention head's output, at all tokens. A few heads do most of the moving; their
attention on the first prompt is drawn below.""",
}


def demo(
    model: ModelOption = "smollm2-135m-instruct",
    out: OutOption = Path("report.html"),
    seed: SeedOption = 0,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    stream: StreamOption = False,
    as_json: JsonOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Patch factual and indirect-object prompts, and write one page that opens anywhere."""
    path = check_out(out or Path("report.html"), (".html",), overwrite=overwrite)
    check_device(device)
    with Output(as_json) as output, keeping(None), output.progress() as bar:
        from tlkit.models.load import HookedTransformer
        from tlkit.plots import Section, report

        started = time.perf_counter()
        output.loading(model)
        loaded = HookedTransformer.from_pretrained(model, dtype=dtype, device=device, stream=stream)
        sections, found = [Section("What this is", [_flowing(INTRODUCTION)])], {}
        for kind, title in KINDS.items():
            items, top = _patched(loaded, kind, bar, seed)
            sections.append(Section(title, items))
            found[kind] = top
        sections.append(Section("Question or answer? ΔP against layer", [_flowing(PATHWAYS)]))
        sections += _pathways(loaded, bar, seed)
        times = {"seconds in all": round(time.perf_counter() - started, 1), "seed": seed}
        report([*sections, Section("Times", [times])], path, title=f"tlkit demo: {model}")
        size = path.stat().st_size
        output.result(
            {"out": path, "seconds": times["seconds in all"], "bytes": size, "heads": found},
            f"Wrote {path} ({size / 1e6:.1f} MB): open it by double click.",
        )


def _patched(model: Any, kind: str, bar: Any, seed: int) -> tuple[list[Any], list[dict[str, Any]]]:
    """Both maps of one kind of pairs, and the attention of the heads that matter most."""
    from tlkit.plots import heatmap
    from tlkit.prompts.samples import pairs
    from tlkit.results.table import top
    from tlkit.studies import patching

    prompts = _alike(model, [row for row in pairs() if row["kind"] == kind])
    shown = zip(prompts.clean_texts, prompts.corrupted_texts, strict=True)
    items: list[Any] = [[{"prompt": clean, "other prompt": other} for clean, other in shown]]
    heads: list[dict[str, Any]] = []
    for site in ("resid_pre", "z"):
        move = bar.stage(f"{kind}: {site}")
        found = patching.run(model, prompts, site, seed=seed, progress=move)
        recovered = found["recovered"].isel(metric=0)
        items += [_flowing(READING[site]), heatmap(recovered)]
        if site == "resid_pre":
            items += ["The same for the first pair alone, with its tokens:"]
            items += [heatmap(recovered, example=0)]
        else:
            heads = top(found, 3)
            items += [heads, _attention(model, prompts, heads), dict(found.attrs)]
    return items, heads


def _pathways(model: Any, bar: Any, seed: int) -> list[Any]:
    """ΔP of our own questions in both readings."""
    from tlkit.cli.pathways_page import sections
    from tlkit.studies import pathways

    blocks = int(model.cfg.n_layers)
    layers = range(0, blocks, max(1, blocks // LAYERS))
    found = pathways.on_samples(
        model, QUESTIONS, seed=seed, stages=bar.stage, seeds=(0,), layers=layers
    )
    return sections(found)


def _flowing(text: str) -> str:
    return " ".join(text.split())


def _alike(model: Any, rows: list[dict[str, Any]]) -> Any:
    """The pairs that differ at the same place and are equally long: those share one map.

    What the model's tokenizer cuts answers into decides, too: the map needs answers of one token.
    """
    from tlkit.prompts.prompts import Prompts

    clean, corrupted, right, wrong = (
        [row[name] for row in rows] for name in ("clean", "corrupted", "answer", "wrong_answer")
    )
    prompts = Prompts.from_pairs(model, clean, corrupted, right, wrong)
    answers = zip(prompts.answers or (), prompts.wrong_answers or (), strict=True)
    single = [i for i, both in enumerate(answers) if [len(ids) for ids in both] == [1, 1]]
    if not single:
        raise SpecError("This model's tokenizer cuts every answer of the demo into several tokens.")
    shapes = {i: (len(prompts.clean[i]), *prompts.differing(i)) for i in single}
    often = list(shapes.values())
    usual = max(set(often), key=lambda shape: (often.count(shape), shape))
    return prompts[[i for i, shape in shapes.items() if shape == usual]]


def _attention(model: Any, prompts: Any, heads: list[dict[str, Any]]) -> Any:
    """The attention of some heads on the first clean prompt."""
    import numpy as np

    from tlkit.engine.patterns import patterns
    from tlkit.plots import attention

    found = patterns(model, prompts.clean[0], {head["layer"] for head in heads})
    names = [f"layer {head['layer']} head {head['head']}" for head in heads]
    weights = np.stack([found[head["layer"]][head["head"]] for head in heads])
    return attention(
        weights, prompts.clean_tokens[0], names=names,
        title="Attention of the heads with the largest effect, on the first prompt",
    )  # fmt: skip
