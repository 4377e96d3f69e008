"""What does a condition of the prompt, such as meaningless tokens put in, do to heads' attention?

`run` measures; `changed_heads` tests every head, `ranked` lists those that changed most, `lines`
gives the curves of chosen ones; `activations` describes what the first MLP makes of it, and
`accuracy` how many word problems are solved, also under `ARM`.
"""

from tlkit.spec.insertions import Insert as Insert
from tlkit.studies.conditions.accuracy import accuracy as accuracy
from tlkit.studies.conditions.activations import activations as activations
from tlkit.studies.conditions.arm import ARM as ARM
from tlkit.studies.conditions.arm import redistributed as redistributed
from tlkit.studies.conditions.compare import changed_heads as changed_heads
from tlkit.studies.conditions.compare import ranked as ranked
from tlkit.studies.conditions.lines import lines as lines
from tlkit.studies.conditions.spans import on_span as on_span
from tlkit.studies.conditions.study import run as run
from tlkit.studies.conditions.transform import Replace as Replace
from tlkit.studies.conditions.transform import System as System
