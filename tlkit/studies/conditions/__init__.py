"""What does a condition of the prompt, such as meaningless tokens put in, do to heads' attention?

`run` measures; `changed_heads` tests every head, `ranked` lists those that changed most, `lines`
gives the curves of chosen ones.
"""

from tlkit.spec.insertions import Insert as Insert
from tlkit.studies.conditions.compare import changed_heads as changed_heads
from tlkit.studies.conditions.compare import ranked as ranked
from tlkit.studies.conditions.lines import lines as lines
from tlkit.studies.conditions.study import run as run
from tlkit.studies.conditions.transform import Replace as Replace
from tlkit.studies.conditions.transform import System as System
