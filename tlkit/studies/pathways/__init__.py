"""Does a model judge its answer by the question (Q-anchored) or by the answer itself (A-anchored)?

`run` measures; `curves`, `aucs`, `table`, `share_right`, `counts` and `reasons` read what it
found; `plan` says what it would cost; `on_samples` runs it on our own questions.
"""

from tlkit.studies.pathways.planning import PathwaysPlan as PathwaysPlan
from tlkit.studies.pathways.planning import plan as plan
from tlkit.studies.pathways.reading import CAPTIONS as CAPTIONS
from tlkit.studies.pathways.reading import aucs as aucs
from tlkit.studies.pathways.reading import counts as counts
from tlkit.studies.pathways.reading import curves as curves
from tlkit.studies.pathways.reading import reasons as reasons
from tlkit.studies.pathways.reading import share_right as share_right
from tlkit.studies.pathways.reading import table as table
from tlkit.studies.pathways.samples import on_samples as on_samples
from tlkit.studies.pathways.samples import own_questions as own_questions
from tlkit.studies.pathways.settings import Settings as Settings
from tlkit.studies.pathways.study import run as run
