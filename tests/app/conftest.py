"""Pairs, a kernel to talk to, and a server to look at."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tlkit.app.explore import first_state
from tlkit.app.kernel import Kernel
from tlkit.prompts.prompts import Prompts

ODD = "</script><b>\n\U0001f600"
CLEAN = [
    "When Mary and John went to the store, John gave a drink to",
    f"The cat{ODD} sat in Rome and",
]
CORRUPTED = [
    "When Mary and John went to the store, Mary gave a drink to",
    f"The dog{ODD} sat in Rome and",
]
RIGHT, WRONG = ["Mary", "Tom"], ["John", "Mary"]


@pytest.fixture(scope="session")
def pairs_of():
    """A function from a model to two pairs, the second of odd tokens."""
    return lambda model: Prompts.from_pairs(model, CLEAN, CORRUPTED, RIGHT, WRONG)


class Talk:
    """Messages to a kernel; every reply must be strict JSON and say which message it answers."""

    def __init__(self, model, prompts, **first):
        first = {"site": "resid_pre", "metric": None, "direction": "denoise", "example": 0} | first
        self.model, self.count = model, 0
        self.kernel = Kernel(model, first_state(model, prompts, **first))

    def __call__(self, kind, **fields):
        self.count += 1
        message = json.loads(json.dumps({"type": kind, "id": self.count, **fields}))
        reply = json.loads(json.dumps(self.kernel.answer(message), allow_nan=False))
        assert reply["re"] == self.count
        return reply

    def rest(self, limit=2000):
        """Every piece that is left."""
        found = []
        for _ in range(limit):
            reply = self("more")
            if reply["kind"] == "idle":
                assert not reply["more"]
                return found
            found.append(reply)
        raise AssertionError("it never ends")


@pytest.fixture
def talk_about():
    """A function from a model, prompts and first choices to a kernel that can be talked to."""
    return Talk


@pytest.fixture
def talk(tiny_bridge, pairs_of):
    """A function from a family and first choices to a kernel."""

    def begin(family="llama3", prompts=None, **first):
        model = tiny_bridge(family)
        return Talk(model, prompts or pairs_of(model), **first)

    return begin


@pytest.fixture(scope="session")
def pairs_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    rows = zip(CLEAN, CORRUPTED, RIGHT, WRONG, strict=True)
    names = ("clean", "corrupted", "answer", "wrong_answer")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def served(pairs_file):
    """`tlkit explore` on a tiny model: its process and its URL; ended by Ctrl+C, with 130."""
    pytest.importorskip("marimo")
    process = subprocess.Popen(
        [sys.executable, "-m", "tlkit.cli", "explore", "--pairs", str(pairs_file), "--model",
         "tiny:llama3", "--no-browser", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # A shell may have told its children to ignore Ctrl+C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    line = process.stdout.readline()
    assert line, process.stderr.read()
    yield process, json.loads(line)["url"]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err
    assert err.rstrip().endswith("Interrupted: the explorer is closed.")
