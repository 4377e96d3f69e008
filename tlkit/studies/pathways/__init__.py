"""Does a model judge its answer by the question (Q-anchored) or by the answer itself (A-anchored)?

`run` measures, `curves` and `table` read what it found, `plan` says what it would cost.
"""

from tlkit.studies.pathways.study import run as run
