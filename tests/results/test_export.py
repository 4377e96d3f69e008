"""Tables hold the dataset's own numbers beside the right labels."""

import numpy as np
import pandas as pd
import pytest

from tlkit.errors import SpecError
from tlkit.results.export import to_csv, to_frame
from tlkit.results.schema import build


@pytest.fixture
def ds():
    return build(
        {
            "kl": (("layer", "example"), np.array([[0.5, np.nan], [1.5, 2.5]])),
            "exact": (("layer",), [True, False]),
        },
        {"layer": [3, 8], "token": ("example", ["a,b", 'say "hi"'])},
    )


def test_a_row_a_cell_with_repeated_smaller_variables(ds):
    frame = to_frame(ds)
    assert list(frame.columns) == ["layer", "example", "kl", "exact", "token"]
    row = frame[(frame.layer == 8) & (frame.example == 1)].iloc[0]
    assert (row.kl, row.exact, row.token) == (2.5, False, 'say "hi"')
    assert np.isnan(frame.kl.to_numpy()).sum() == 1


def test_csv_reads_back_the_same(ds, tmp_path):
    path = to_csv(ds, tmp_path / "kl.csv")
    pd.testing.assert_frame_equal(pd.read_csv(path), to_frame(ds), check_dtype=False)
    with pytest.raises(SpecError, match=r"kl\.csv exists already"):
        to_csv(ds, path)
    assert [p.name for p in tmp_path.iterdir()] == ["kl.csv"]


def test_variables_that_share_no_cells_are_not_multiplied_out(ds):
    more = ds.assign(probe_auc=(("layer", "seed"), np.array([[0.5], [0.75]])))
    with pytest.raises(SpecError, match="probe_auc has dimensions of its own"):
        to_frame(more)
    assert to_frame(more, ["probe_auc"]).probe_auc.tolist() == [0.5, 0.75]
    with pytest.raises(SpecError, match=r"no variable \['f1'\]: it has kl, exact"):
        to_frame(ds, ["f1"])
