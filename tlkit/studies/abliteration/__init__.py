"""What carries a behaviour such as refusal: its direction, found, taken out, and what that does.

`run` finds and measures; `projected` takes a direction out while it is on, `bake` out of the
weights, and `save` writes the edited model as a Hugging Face folder.
"""

from tlkit.studies.abliteration.bake import Baked as Baked
from tlkit.studies.abliteration.bake import bake as bake
from tlkit.studies.abliteration.directions import Directions as Directions
from tlkit.studies.abliteration.directions import directions as directions
from tlkit.studies.abliteration.directions import subspace as subspace
from tlkit.studies.abliteration.inputs import by_label as by_label
from tlkit.studies.abliteration.projection import projected as projected
from tlkit.studies.abliteration.save import save as save
from tlkit.studies.abliteration.settings import Settings as Settings
from tlkit.studies.abliteration.study import run as run
from tlkit.studies.behaviour import Phrases as Phrases
from tlkit.studies.behaviour import classify as classify
