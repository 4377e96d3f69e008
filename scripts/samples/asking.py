"""Make requests.jsonl from requests.txt: verb phrases under `# label split topic` lines.

Every phrase stands in one frame; frames take turns, one turn for each label, so that both labels
and every topic meet all of them.
"""

from collections import Counter
from pathlib import Path

from tlkit.prompts.samples.training import FRAMES


def requests() -> list[dict[str, str]]:
    """All requests, topic after topic."""
    rows, seen = [], Counter()
    label = split = topic = ""
    path = Path(__file__).with_name("requests.txt")
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            label, split, topic = line[2:].split()
            continue
        frame = list(FRAMES)[seen[label] % len(FRAMES)]
        seen.update((label, topic))
        rows.append(
            {
                "id": f"{topic}-{seen[topic]:02d}",
                "prompt": FRAMES[frame].replace("{}", line),
                "label": label,
                "topic": topic,
                "frame": frame,
                "split": split,
            }
        )
    return rows
