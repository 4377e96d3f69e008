"""Which families of model can be loaded, told from a config alone."""

from collections.abc import Mapping
from typing import Any

from tlkit.errors import SpecError

# The classes that tlkit's own tests hold to Hugging Face's numbers.
TESTED = (
    "GPT2LMHeadModel",
    "GPTJForCausalLM",
    "GPTNeoXForCausalLM",
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "MixtralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Gemma2ForCausalLM",
    "Gemma3ForCausalLM",
    "OPTForCausalLM",
    "PhiForCausalLM",
    "Phi3ForCausalLM",
    "FalconForCausalLM",
    "BloomForCausalLM",
)


def bridged() -> frozenset[str]:
    """Give the class names that TransformerLens has an adapter for."""
    from transformer_lens.factories.architecture_adapter_factory import SUPPORTED_ARCHITECTURES

    return frozenset(SUPPORTED_ARCHITECTURES)


def check_kind(raw: Mapping[str, Any], source: str) -> None:
    """Refuse models that do not predict the next token from those before it.

    Raises:
        SpecError: Encoder-only or encoder-decoder.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    kind = raw.get("model_type")
    if raw.get("is_encoder_decoder"):
        raise SpecError(
            f"{source} is an encoder-decoder model ({kind}); tlkit studies decoders that predict "
            f"the next token."
        )
    if kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        raise SpecError(
            f"{source} is an encoder-only model ({kind}): it predicts no next token, which every "
            f"tlkit study needs."
        )


def check_raw_config(raw: Mapping[str, Any], source: str, trust_remote_code: bool) -> None:
    """Refuse what a config.json alone shows to be out of reach.

    Args:
        raw: The config as it stands in the file.
        source: What the model is called in messages.
        trust_remote_code: Whether code that comes with the model may run.

    Raises:
        SpecError: Encoder-only or encoder-decoder, quantised, of an unknown type, or in need of
            `trust_remote_code`.
    """
    from transformers import CONFIG_MAPPING

    check_kind(raw, source)
    kind = raw.get("model_type")
    check_quantisation(raw.get("quantization_config"), source)
    if kind not in CONFIG_MAPPING and "auto_map" not in raw:
        raise unsupported(str(kind), source)
    if kind not in CONFIG_MAPPING and not trust_remote_code:
        raise SpecError(
            f"{source} comes with Python code of its own (model type {kind}); read it, then pass "
            f"trust_remote_code=True to run it."
        )
    check_family(family_of(raw), source)


def check_quantisation(settings: Any, source: str) -> None:
    """Refuse weights that are packed into a few bits.

    Raises:
        SpecError: They are.
    """
    if not settings:
        return
    read = settings.get if isinstance(settings, Mapping) else settings.to_dict().get
    method = read("quant_method") or "bitsandbytes"
    raise SpecError(
        f"{source} is quantised ({getattr(method, 'value', method)}): its packed weights cannot be "
        f"read and written as numbers at tlkit's sites; load the unquantised model, in "
        f"dtype='bfloat16' if memory is short."
    )


def unsupported(family: str, source: str) -> SpecError:
    """Make the error for a family that cannot be loaded."""
    more = len(bridged() - set(TESTED))
    return SpecError(
        f"{source} is a {family}, which is not supported; supported are {', '.join(TESTED)}, and "
        f"untested {more} more that TransformerLens knows."
    )


def family_of(raw: Mapping[str, Any]) -> str:
    """Find the class that would be built from a config.

    Returns:
        The class's name, such as "LlamaForCausalLM"; if there is none, what the config says it is.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    known = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(str(raw.get("model_type")))
    if known is not None:
        return known
    remote = (raw.get("auto_map") or {}).get("AutoModelForCausalLM")
    if remote is not None:
        return str(remote).rpartition(".")[2]
    return str((raw.get("architectures") or [raw.get("model_type")])[0])


def check_family(family: str, source: str) -> None:
    """Refuse a class that TransformerLens cannot put hooks on.

    Raises:
        SpecError: It is one.
    """
    if family not in bridged():
        raise unsupported(family, source)
