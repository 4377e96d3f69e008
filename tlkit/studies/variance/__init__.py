"""How much does attention vary over long documents, layer by layer, before and after fine-tuning?

`run` measures; `by_layer` gives the curves, `compare` the paired difference of two models.
"""

from tlkit.studies.variance.compare import by_layer as by_layer
from tlkit.studies.variance.compare import compare as compare
from tlkit.studies.variance.scores import KINDS as KINDS
from tlkit.studies.variance.study import run as run
