"""Whether the scale of attention is a constant of the exported graph."""

from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

_sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]


def _sdpa_with_scale(module, *arguments, scaling=None, **options):
    """Transformers' sdpa with the scale always said.

    Transformers 4.57 leaves GPT-2's scale to torch, whose exporter then computes it
    from the shape of the query at run time; a scale that is said becomes a constant.
    """
    scaling = module.head_dim**-0.5 if scaling is None else scaling
    return _sdpa(module, *arguments, scaling=float(scaling), **options)


def choose(attention):
    """Registers "sdpa" as Transformers has it, or as "constant_scale"; returns its name."""
    AttentionInterface.register("sdpa", _sdpa_with_scale if attention == "constant_scale" else _sdpa)
    return "sdpa"
