"""A journal of finished cells, so that an interrupted run can go on where it stopped.

One file: a header line (JSON, with the key of the run), then records, each a group of finished
jobs with a checksum. Records are appended and flushed to disk as groups finish; a record that
was cut short or damaged is dropped, alone, and its jobs are run again.
"""

import json
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tlkit.errors import SpecError, warn
from tlkit.results.disk import writing

_MAGIC = b"TLKJ"
_HEAD = struct.Struct("<4sIII")
FORMAT = 1
KEPT = "What was finished before is kept; make room, and the same run goes on."


class Journal:
    """Finished jobs of one run.

    Args:
        path: The journal's file.
        key: What identifies the run: weights, tokens, spec, dtype, versions.
        metrics: How many values each job has.

    Raises:
        SpecError: The file belongs to another run, or is no journal.
        EngineError: The disk does not take it.
    """

    def __init__(self, path: Path, key: str, metrics: int) -> None:
        self.path, self.key, self.metrics = path, key, metrics
        self.finished: dict[tuple[int, int], np.ndarray] = {}
        header = json.dumps({"tlkit_journal": FORMAT, "key": key, "metrics": metrics})
        self._header = header.encode() + b"\n"
        with writing(path):
            data = path.read_bytes() if path.exists() else b""
            # A process that was killed while it began may have left less than the header.
            if len(data) < len(self._header) and self._header.startswith(data):
                path.parent.mkdir(parents=True, exist_ok=True)
                self._rewrite(self._header)
            else:
                self._read(data)

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
        """Add to the end, all of it or nothing: what follows half a record could not be found."""
        with writing(self.path, KEPT), self.path.open("ab") as file:
            end = file.tell()
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                os.truncate(self.path, end)
                raise

    def _rewrite(self, data: bytes) -> None:
        """Put something in place of the whole file, at once."""
        new = self.path.with_name(self.path.name + ".new")
        new.write_bytes(data)
        new.replace(self.path)

    def _remember(self, where: np.ndarray, values: np.ndarray) -> None:
        for (cell, example), value in zip(where.tolist(), values.T, strict=True):
            self.finished[cell, example] = value

    def _read(self, data: bytes) -> None:
        line, _, rest = data.partition(b"\n")
        try:
            header = json.loads(line)
            known = header["key"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise SpecError(
                f"{self.path} is not a journal of tlkit; choose another --out."
            ) from None
        if known != self.key or header.get("metrics") != self.metrics:
            raise SpecError(
                f"{self.path} belongs to another run (other weights, prompts, cells or versions); "
                f"choose another --out, or delete it."
            )
        good, damaged, at = [line + b"\n"], False, 0
        while at < len(rest):
            taken = self._record(rest[at:])
            if taken:
                good.append(rest[at : at + taken])
                at += taken
                continue
            following = rest.find(_MAGIC, at + 1)
            damaged |= following >= 0
            at = following if following >= 0 else len(rest)
        whole = b"".join(good)
        if len(whole) < len(data):
            self._rewrite(whole)
        if damaged:
            warn(
                f"{self.path} was damaged: {len(self.finished)} sound results in it are used, and "
                f"what is missing is run again."
            )

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
