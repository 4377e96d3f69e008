"""What came out: labelled datasets with units and provenance, and what to do with them."""

from tlkit.results.export import to_csv as to_csv
from tlkit.results.export import to_frame as to_frame
from tlkit.results.files import open as open
from tlkit.results.files import save as save
from tlkit.results.provenance import provenance as provenance
from tlkit.results.schema import build as build
from tlkit.results.schema import token_coords as token_coords
from tlkit.results.statistics import auc as auc
from tlkit.results.statistics import benjamini_hochberg as benjamini_hochberg
from tlkit.results.statistics import bootstrap_interval as bootstrap_interval
from tlkit.results.statistics import mean_interval as mean_interval
from tlkit.results.statistics import paired_permutation as paired_permutation
from tlkit.results.table import top as top
