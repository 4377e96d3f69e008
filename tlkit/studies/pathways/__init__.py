"""Does a model judge its answer by the question (Q-anchored) or by the answer itself (A-anchored)?

`run` measures; `cuts`, `probes`, `patch_tokens`, `knowledge_boundary`, `detect` and `saliency` each
measure one part of it. `curves`, `by_cut`, `aucs`, `places`, `flips`, `boundary`, `awareness`,
`detectors`, `saliency_density`, `table`, `share_right`, `counts` and `reasons` read what was found;
`plan` says what it would cost; `answer` and `given` make answers; `on_samples` runs it on our own
questions.
"""

from tlkit.studies.answers import answer as answer
from tlkit.studies.pathways.alone import cuts as cuts
from tlkit.studies.pathways.alone import detect as detect
from tlkit.studies.pathways.alone import knowledge_boundary as knowledge_boundary
from tlkit.studies.pathways.alone import patch_tokens as patch_tokens
from tlkit.studies.pathways.alone import probes as probes
from tlkit.studies.pathways.alone import saliency as saliency
from tlkit.studies.pathways.edge_saliency import saliency_density as saliency_density
from tlkit.studies.pathways.giving import given as given
from tlkit.studies.pathways.knowledge import boundary as boundary
from tlkit.studies.pathways.notes import counts as counts
from tlkit.studies.pathways.notes import reasons as reasons
from tlkit.studies.pathways.notes import share_right as share_right
from tlkit.studies.pathways.planning import PathwaysPlan as PathwaysPlan
from tlkit.studies.pathways.planning import plan as plan
from tlkit.studies.pathways.reading import CAPTIONS as CAPTIONS
from tlkit.studies.pathways.reading import by_cut as by_cut
from tlkit.studies.pathways.reading import curves as curves
from tlkit.studies.pathways.reading import table as table
from tlkit.studies.pathways.samples import on_samples as on_samples
from tlkit.studies.pathways.samples import own_questions as own_questions
from tlkit.studies.pathways.scores import aucs as aucs
from tlkit.studies.pathways.scores import awareness as awareness
from tlkit.studies.pathways.scores import detectors as detectors
from tlkit.studies.pathways.scores import flips as flips
from tlkit.studies.pathways.scores import places as places
from tlkit.studies.pathways.settings import PARTS as PARTS
from tlkit.studies.pathways.settings import Settings as Settings
from tlkit.studies.pathways.study import run as run
