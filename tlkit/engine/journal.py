"""A journal of finished cells, so that an interrupted run can go on where it stopped.

One file: a header line (JSON, with the key of the run), then records, each a group of finished
jobs with a checksum. Records are appended and flushed to disk as groups finish; a record that
was cut short or damaged is dropped, and its jobs are run again.
"""

import json
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tlkit.errors import SpecError

_MAGIC = b"TLKJ"
_HEAD = struct.Struct("<4sIII")
FORMAT = 1


class Journal:
    """Finished jobs of one run.

    Args:
        path: The journal's file.
        key: What identifies the run: weights, tokens, spec, dtype, versions.
        metrics: How many values each job has.

    Raises:
        SpecError: The file belongs to another run, or is no journal.
    """

    def __init__(self, path: Path, key: str, metrics: int) -> None:
        self.path, self.key, self.metrics = path, key, metrics
        self.finished: dict[tuple[int, int], np.ndarray] = {}
        if path.exists():
            self._read()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            header = json.dumps({"tlkit_journal": FORMAT, "key": key, "metrics": metrics})
            self._append(header.encode() + b"\n")

    def add(self, jobs: Sequence[tuple[int, int]], values: np.ndarray) -> None:
        """Keep the values ``[metric, job]`` of jobs, each a (cell, example)."""
        where = np.array(jobs, dtype="<i4").reshape(-1, 2)
        body = where.tobytes() + np.ascontiguousarray(values, dtype="<f4").tobytes()
        self._append(_HEAD.pack(_MAGIC, len(where), values.shape[0], zlib.crc32(body)) + body)
        self._remember(where, values)

    def remove(self) -> None:
        """Delete the journal of a run whose result is safe elsewhere."""
        self.path.unlink(missing_ok=True)

    def _append(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _remember(self, where: np.ndarray, values: np.ndarray) -> None:
        for (cell, example), value in zip(where.tolist(), values.T, strict=True):
            self.finished[cell, example] = value

    def _read(self) -> None:
        data = self.path.read_bytes()
        line, _, rest = data.partition(b"\n")
        try:
            header = json.loads(line)
            known = header["key"]
        except (ValueError, KeyError, TypeError):
            raise SpecError(
                f"{self.path} is not a journal of tlkit; choose another --out."
            ) from None
        if known != self.key or header.get("metrics") != self.metrics:
            raise SpecError(
                f"{self.path} belongs to another run (other weights, prompts, cells or versions); "
                f"choose another --out, or delete it."
            )
        good = len(line) + 1
        while True:
            taken = self._record(rest)
            if taken == 0:
                break
            rest = rest[taken:]
            good += taken
        if good < len(data):
            # What follows a damaged record cannot be found; it is run again.
            with self.path.open("r+b") as file:
                file.truncate(good)

    def _record(self, data: bytes) -> int:
        """Read one record; the number of bytes it takes, or 0 where there is no whole one."""
        if len(data) < _HEAD.size:
            return 0
        magic, jobs, metrics, checksum = _HEAD.unpack_from(data)
        size = jobs * 8 + jobs * metrics * 4
        body = data[_HEAD.size : _HEAD.size + size]
        if magic != _MAGIC or len(body) < size or zlib.crc32(body) != checksum:
            return 0
        where = np.frombuffer(body, dtype="<i4", count=2 * jobs).reshape(-1, 2)
        values = np.frombuffer(body, dtype="<f4", offset=8 * jobs).reshape(metrics, jobs)
        self._remember(where, values)
        return _HEAD.size + size
