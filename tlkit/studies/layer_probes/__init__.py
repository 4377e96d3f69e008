"""At which layer, and in block or attention output, are two kinds of prompt told apart?

`run` measures, `figure` draws, `table` sums up; `plan` says the cost beforehand. `bypass` skips
the layers that see a class in a prompt. `norms`, `attention_maps`, `projection`: further pictures.
"""

from typing import Any

from tlkit.studies.layer_probes.bypass import bypass as bypass
from tlkit.studies.layer_probes.features import Making as Making
from tlkit.studies.layer_probes.maps import attention_maps as attention_maps
from tlkit.studies.layer_probes.maps import norms as norms
from tlkit.studies.layer_probes.plane import projection as projection
from tlkit.studies.layer_probes.reading import table as table
from tlkit.studies.layer_probes.study import plan as plan
from tlkit.studies.layer_probes.study import run as run


def figure(ds: Any, variable: str | None = None, title: str | None = None) -> Any:
    """Two heat maps, model by layer: of block outputs and of attention outputs.

    Args:
        ds: What `run` gave.
        variable: ``"f1"`` if None, or another score.
        title: In place of the one that says what was done.

    Returns:
        The plotly figure that `tk.plot` gives.
    """
    import tlkit

    return tlkit.plot(ds, variable=variable, title=title)
