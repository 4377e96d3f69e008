"""What ``tlkit patch`` was asked for, checked before a model is loaded."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tlkit.cli.options import check_device, check_executor, check_out, check_share, only_one
from tlkit.errors import SpecError
from tlkit.studies.maps import second_axis

ENDINGS = (".html", ".zarr", ".csv")


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    pairs: Path
    model: str
    out: Path | None
    sites: list[str]
    by: Any
    metric: str
    n: int | None
    noise: bool
    chat: bool
    single_token: bool
    fields: str | None
    audit: float
    top: int | None
    remainder: int | None
    budget: str | None
    seed: int
    dtype: Any
    device: str | None
    stream: bool
    engine: str
    plan: bool
    as_json: bool
    resume: bool
    overwrite: bool
    executor: str | None
    workers: int | None

    def check(self) -> None:
        """Refuse what cannot be, before a model is loaded."""
        only_one(resume=self.resume, overwrite=self.overwrite)
        check_device(self.device)
        check_share("--audit", self.audit)
        if (self.top, self.remainder) != (None, None) and self.engine != "verified":
            raise SpecError(
                "--top and --remainder say what --engine verified runs; give that, too."
            )
        check_executor(self.executor, self.workers, self.engine)
        for name in self.sites:
            second_axis(name, self.by)
        if self.resume and self.out is None:
            raise SpecError("--resume needs --out NAME.zarr: the store that it continues.")
        if self.out is None and not self.plan and not self.as_json:
            raise SpecError("patch needs --out NAME.html, .zarr or .csv (or --plan, or --json).")
        if self.out is not None:
            free = self.overwrite or self.plan  # a plan writes nothing
            check_out(self.out, ENDINGS, resume=self.resume, overwrite=free)
            if self.out.suffix != ".html" and len(self.sites) > 1:
                raise SpecError(
                    f"{self.out} holds one map; give one --site, or --out NAME.html for several."
                )
        from tlkit.engine.budget import bytes_of
        from tlkit.prompts.pairs import OPTIONAL, REQUIRED
        from tlkit.prompts.read import parse_fields, read_jsonl

        bytes_of(self.budget)
        read_jsonl(self.pairs, parse_fields(self.fields), REQUIRED, OPTIONAL, self.n)

    @property
    def store(self) -> Path | None:
        """Where finished cells are kept as they come."""
        return self.out if self.out is not None and self.out.suffix == ".zarr" else None

    @property
    def asked(self) -> dict[str, Any]:
        """What the sweep is made of."""
        return {"by": self.by, "on": "clean" if self.noise else "corrupted"}

    @property
    def verify(self) -> dict[str, Any]:
        """How much of it is run exactly, where estimates rank the rest."""
        return {"top": self.top, "remainder": self.remainder}

    @property
    def spread(self) -> Any:
        """Who runs it, if not this process."""
        if self.executor is None:
            return None
        from tlkit.engine.on_ray import Ray

        return Ray(workers=self.workers)
