"""What does each layer or head do, and how does that differ between a model and its sisters?

`run` ablates and measures, `plan` says what that will cost; `by_layer` gives the curves, `compare`
the paired difference of two models.
"""

from tlkit.studies.ablation.compare import by_layer as by_layer
from tlkit.studies.ablation.compare import compare as compare
from tlkit.studies.ablation.planning import plan as plan
from tlkit.studies.ablation.study import run as run
