"""Write the sample files of tlkit from the hand-written tables beside this script.

Usage: python scripts/samples/build.py [FOLDER]   (default: tlkit/prompts/samples)

The same tables give the same bytes. After a change, raise VERSION in the package, measure again
what docs/samples.md states, and commit the files with their new checksums.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from asking import requests
from documents import documents
from pairs import pairs
from problems import problems
from questions import questions

PACKAGE = Path(__file__).parents[2] / "tlkit" / "prompts" / "samples"
MAKERS: Mapping[str, Callable[[], Sequence[Mapping[str, object]]]] = {
    "documents.jsonl": documents,
    "pairs.jsonl": pairs,
    "questions.jsonl": questions,
    "requests.jsonl": requests,
    "word_problems.jsonl": problems,
}


def checksum(name: str, content: bytes) -> str:
    """A line of SHA256SUMS."""
    return f"{hashlib.sha256(content).hexdigest()}  {name}\n"


def build(folder: Path) -> None:
    """Write every sample file and SHA256SUMS into a folder."""
    sums = []
    for name, make in MAKERS.items():
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in make())
        content = lines.encode("utf-8")
        (folder / name).write_bytes(content)
        sums.append(checksum(name, content))
    sums.append(checksum("training.txt", (PACKAGE / "training.txt").read_bytes()))
    (folder / "SHA256SUMS").write_bytes("".join(sums).encode("ascii"))


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE)
