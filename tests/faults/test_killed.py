"""Promise: kill -9 at any moment loses no finished cell, repeats none, and changes no number."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("killing.py")


def killed(kind, folder, kills, seed):
    """What was counted over several kills."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, str(DRIVER), kind, str(folder), str(kills), str(seed)],
        capture_output=True, text=True, env=environment, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    print(kind, found)
    return found


@pytest.mark.parametrize("kind", ["sweep", "save"])
def test_killed_a_few_times(kind, tmp_path):
    found = killed(kind, tmp_path, 4, 1)
    assert found["kills"] >= 3
    assert found["lost"] == found.get("repeated", 0) == found.get("different", 0) == 0


@pytest.mark.campaign
def test_a_sweep_killed_at_50_random_moments(tmp_path):
    found = killed("sweep", tmp_path, 50, 2)
    assert found["kills"] >= 50
    assert found["lost"] == found["repeated"] == found["different"] == 0


@pytest.mark.campaign
def test_a_study_killed_at_50_random_moments(tmp_path):
    found = killed("study", tmp_path, 50, 3)
    assert found["kills"] >= 50
    assert found["lost"] == found["repeated"] == found["different"] == 0


@pytest.mark.campaign
def test_a_save_killed_at_50_of_its_file_operations(tmp_path):
    """The store is the old one or the new one, whole, and nothing is left beside it."""
    found = killed("save", tmp_path, 50, 4)
    assert found["lost"] == found["litter"] == 0
    assert found["old"] > 0 < found["new"]
