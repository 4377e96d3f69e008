"""Pictures of results: a dataset in, a figure or a page out; nothing is computed or fetched."""

from tlkit.plots.attention import Attention as Attention
from tlkit.plots.attention import attention as attention
from tlkit.plots.attention import attention_page as attention_page
from tlkit.plots.curves import curve as curve
from tlkit.plots.heatmaps import heatmap as heatmap
from tlkit.plots.report import Section as Section
from tlkit.plots.report import report as report
from tlkit.plots.saving import save as save
from tlkit.plots.views import plot as plot
