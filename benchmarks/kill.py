"""A sweep killed with `kill -9`, twice, and gone on with: is anything lost or done twice?

    python benchmarks/kill.py docs/images

Layer x head, z of the name movers' task, in a child process that keeps its cells in a store. The
child notes every job (cell and example) that it finishes. It is killed after about a third and
after about two thirds of them, started again each time with the same call, and its dataset is
compared with that of a run that nobody disturbed. Draws finished jobs against time.
"""

import collections
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from timing import machine, say

PAIRS, GROUP = 4, 400
SHARES = (0.3, 0.65)


def child(store: str, notes: str) -> None:
    """The sweep; what is finished goes to `notes`, one line a group."""
    import tlkit as tk
    import tlkit.engine.packed_values
    from tlkit.engine.journal import Journal
    from tlkit.prompts.samples import pairs

    # Small groups: with the usual ones this sweep has few moments at which anything is finished.
    tlkit.engine.packed_values.GROUP_ROWS = GROUP
    add = Journal.add

    def noted(self, jobs, values):
        add(self, jobs, values)
        with Path(notes).open("a") as file:
            file.write(json.dumps({"at": time.time(), "jobs": [list(job) for job in jobs]}) + "\n")

    Journal.add = noted
    model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct")
    rows = [row for row in pairs() if row["kind"] == "ioi"][:PAIRS]
    prompts = tk.Prompts.from_pairs(
        model, *([row[key] for row in rows]
                 for key in ("clean", "corrupted", "answer", "wrong_answer")),
    )  # fmt: skip
    layers, heads = range(model.cfg.n_layers), range(model.cfg.n_heads)
    sweep = tk.Sweep(tk.Patch(tk.Site("z")), layer=layers, head=heads)
    tk.run(model, prompts, sweep, tk.LogitDiff(), store=store)


def start(store: Path, notes: Path) -> subprocess.Popen:
    """A child process."""
    return subprocess.Popen([sys.executable, __file__, "--child", str(store), str(notes)])


def lines_of(notes: Path) -> list[dict]:
    """What was noted so far; a line that is being written is left out."""
    if not notes.exists():
        return []
    return [json.loads(line) for line in notes.read_text().splitlines() if line.endswith("}")]


def finished(notes: Path) -> int:
    """How many jobs were noted."""
    return sum(len(line["jobs"]) for line in lines_of(notes))


def until(process: subprocess.Popen, notes: Path, jobs: int) -> None:
    """Wait for so many jobs, then kill."""
    while process.poll() is None and finished(notes) < jobs:
        time.sleep(0.02)
    if process.poll() is not None:
        raise RuntimeError("The child ended before it was killed.")
    process.send_signal(signal.SIGKILL)
    process.wait()


def picture(attempts: list[list[tuple[float, int]]], path: Path) -> None:
    """Finished jobs against seconds, an attempt a colour."""
    import plotly.graph_objects as go

    from tlkit.plots.saving import save

    figure = go.Figure()
    names = ("killed", "resumed, killed again", "resumed, to the end")
    for name, points in zip(names, attempts, strict=True):
        figure.add_scatter(x=[x for x, _ in points], y=[y for _, y in points], name=name,
                           mode="lines+markers", line_shape="hv")  # fmt: skip
    figure.update_layout(
        xaxis_title="seconds of work", yaxis_title="finished cells of all examples",
        template="plotly_white",
        width=760, height=380, legend={"orientation": "h", "y": 1.15},
    )  # fmt: skip
    save(figure, path)


def main(images: Path | None) -> None:
    """Kill, resume, compare."""
    import xarray as xr

    import tlkit as tk

    folder = Path(tempfile.mkdtemp())
    whole = folder / "whole.zarr"
    if start(whole, folder / "whole.txt").wait():
        raise RuntimeError("The undisturbed run failed.")
    total = finished(folder / "whole.txt")
    store, notes, attempts, worked, kept = folder / "killed.zarr", folder / "notes.txt", [], 0.0, []
    for share in (*SHARES, None):
        before, began = len(lines_of(notes)), time.time()
        process = start(store, notes)
        if share is None:
            if process.wait():
                raise RuntimeError("The last run failed.")
        else:
            until(process, notes, int(share * total))
        done = sum(len(line["jobs"]) for line in lines_of(notes)[:before])
        points = [(worked, done)]
        for line in lines_of(notes)[before:]:
            done += len(line["jobs"])
            points.append((worked + line["at"] - began, done))
        worked += time.time() - began
        attempts.append(points)
        kept.append(done)
    jobs = collections.Counter(
        tuple(job) for line in lines_of(notes) for job in line["jobs"]
    )  # fmt: skip
    one, other = tk.open(whole), tk.open(store)
    if images:
        picture(attempts, images / "kill.png")
    say({
        "machine": machine(), "jobs": total, "kept_after_each": kept,
        "done_twice": sum(count > 1 for count in jobs.values()), "missing": total - len(jobs),
        "largest_difference": float(abs(one["value"] - other["value"]).max()),
        "complete": bool(other.attrs["complete"]),
        "same_coordinates": all(xr.DataArray.equals(one[c], other[c]) for c in one.coords),
    })  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:4])
    else:
        main(Path(sys.argv[1]) if sys.argv[1:] else None)
