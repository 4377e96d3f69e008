"""A store gives back what was put in, or is refused: nothing in between."""

import json
import shutil
import warnings

import numpy as np
import pytest
import xarray as xr

from tlkit.errors import EngineError, SpecError
from tlkit.results import files
from tlkit.results.schema import build, token_coords


@pytest.fixture
def ds():
    values = np.random.default_rng(0).normal(size=(1, 3, 2, 4)).astype(np.float32)
    values[0, 1, 0, 2] = np.nan
    values[0, 2] = -0.0
    rows = [["<bos>", " Mary"], ["é", "日本"], ["", "</script><b>"], ["a", "b"]]
    return build(
        {
            "effect": (("metric", "layer", "pos", "example"), values),
            "exact": (("layer", "pos"), [[True, False]] * 3),
            "clean": (("metric", "example"), np.full((1, 4), np.nan)),
            "seconds_a_cell": (("layer",), np.array([3, 0, 7], dtype=np.int16), "seconds"),
        },
        {
            "metric": ["logit_diff"],
            "metric_units": ("metric", ["logits"]),
            "layer": [0, 5, 9],
            **token_coords(rows),
        },
        {"study": "patching", "audit": float("nan"), "share": 0.1, "note": "ü", "ok": True},
    )


@pytest.fixture
def store(ds, tmp_path):
    return files.save(ds, tmp_path / "run.zarr")


def test_a_round_trip_is_identical_in_values_types_labels_and_attributes(ds, store):
    again = files.open(store)
    xr.testing.assert_identical(
        again.drop_attrs(deep=False), ds.drop_attrs(deep=False)
    )  # nan != nan in attributes
    assert {n: v.dtype for n, v in again.variables.items() if v.dtype.kind != "U"} == {
        n: v.dtype for n, v in ds.variables.items() if v.dtype.kind != "U"
    }
    assert again["token"].values.tolist() == ds["token"].values.tolist()
    assert np.signbit(again["effect"].values[0, 2]).all()
    assert repr(again.attrs) == repr(ds.attrs)
    assert again["seconds_a_cell"].attrs == {"units": "seconds"}


def test_saving_warns_of_nothing_and_leaves_only_the_store(ds, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        files.save(ds, tmp_path / "a.zarr")
        files.open(tmp_path / "a.zarr")
    assert [p.name for p in tmp_path.iterdir()] == ["a.zarr"]


def test_no_pickle_is_in_the_store(store):
    codecs = [c["name"] for f in store.rglob("zarr.json") for c in _codecs(f)]
    assert set(codecs) <= {"bytes", "vlen-utf8", "zstd"}


def _codecs(file):
    return json.loads(file.read_text()).get("codecs", [])


def test_an_existing_store_is_kept_unless_asked_otherwise(ds, store):
    with pytest.raises(SpecError, match="exists already: choose another name"):
        files.save(ds, store)
    files.save(ds.isel(layer=[1]), store, overwrite=True)
    assert files.open(store)["layer"].values.tolist() == [5]


def test_a_folder_that_is_no_store_is_never_replaced(ds, tmp_path):
    (tmp_path / "thesis.zarr").mkdir()
    (tmp_path / "thesis.zarr" / "chapter.txt").write_text("years of work")
    with pytest.raises(SpecError, match="no saved result, so it is not replaced"):
        files.save(ds, tmp_path / "thesis.zarr", overwrite=True)
    assert (tmp_path / "thesis.zarr" / "chapter.txt").read_text() == "years of work"


def test_a_save_that_fails_leaves_the_old_store_and_no_litter(ds, store, monkeypatch):
    def full_disk(*_args, **_kwargs):
        raise OSError("no space left")

    monkeypatch.setattr(xr.Dataset, "to_zarr", full_disk)
    with pytest.raises(EngineError, match="cannot be written: no space left"):
        files.save(ds.isel(layer=[1]), store, overwrite=True)
    assert files.open(store)["layer"].values.tolist() == [0, 5, 9]
    assert [p.name for p in store.parent.iterdir()] == [store.name]


@pytest.mark.parametrize(
    ("name", "message"),
    [("run.npz", "saved as .zarr: name it .*run.zarr"), ("no/run.zarr", "no does not exist")],
)
def test_a_bad_place_is_refused(ds, tmp_path, name, message):
    with pytest.raises(SpecError, match=message):
        files.save(ds, tmp_path / name)


def test_values_that_no_store_holds_are_refused(ds, tmp_path):
    odd = ds.assign(when=("layer", np.array(["2020-01-01"] * 3, dtype="datetime64[ns]")))
    with pytest.raises(SpecError, match="'when' holds datetime64"):
        files.save(odd, tmp_path / "x.zarr")
    assert list(tmp_path.iterdir()) == []


def test_missing_and_foreign_stores_are_refused(ds, tmp_path):
    with pytest.raises(SpecError, match="There are no results at"):
        files.open(tmp_path / "none.zarr")
    (tmp_path / "empty.zarr").mkdir()
    with pytest.raises(SpecError, match=r"no saved result: it has no zarr\.json"):
        files.open(tmp_path / "empty.zarr")
    xr.Dataset({"a": ("x", [1.0])}).to_zarr(
        tmp_path / "other.zarr", zarr_format=3, consolidated=False
    )
    with pytest.raises(SpecError, match="was not saved by tlkit"):
        files.open(tmp_path / "other.zarr")


def test_a_newer_schema_is_refused_with_its_number(ds, tmp_path):
    files.save(ds.assign_attrs(schema_version=99), tmp_path / "new.zarr")
    with pytest.raises(SpecError, match="schema version 99 and this tlkit reads up to 1"):
        files.open(tmp_path / "new.zarr")


def test_every_file_of_a_store_is_needed(store):
    for file in sorted(p for p in store.rglob("*") if p.is_file()):
        body = file.read_bytes()
        file.unlink()
        with pytest.raises(SpecError, match=r"is damaged|no saved result|not saved by tlkit"):
            files.open(store)
        file.write_bytes(body)
    assert files.open(store)["layer"].values.tolist() == [0, 5, 9]


def test_a_truncated_chunk_is_refused(store):
    for file in sorted(p for p in store.rglob("c/*") if p.is_file()):
        body = file.read_bytes()
        file.write_bytes(body[: len(body) // 2])
        with pytest.raises(SpecError, match="is damaged"):
            files.open(store)
        file.write_bytes(body)


def test_one_flipped_bit_is_refused_or_changes_nothing(ds, store):
    """In chunks always seen; in metadata it may fall on white space or a codec's level."""
    before = files.open(store)
    rng = np.random.default_rng(0)
    for file in sorted(p for p in store.rglob("*") if p.is_file()):
        body = file.read_bytes()
        for place in rng.choice(len(body), size=min(4, len(body)), replace=False):
            flipped = bytearray(body)
            flipped[place] ^= 1 << int(rng.integers(8))
            file.write_bytes(bytes(flipped))
            try:
                after = files.open(store)
            except SpecError as error:
                assert (
                    "damaged" in str(error) or "not saved" in str(error) or "version" in str(error)
                )
            else:
                assert repr(after.attrs) == repr(before.attrs)
                xr.testing.assert_equal(after, before)
        file.write_bytes(body)


def test_a_changed_number_in_an_intact_store_is_named(ds, store, tmp_path):
    """The kind of damage that a codec cannot see."""
    other = ds.copy(deep=True)
    other["effect"][0, 0, 0, 0] += 1e-3
    files.save(other, tmp_path / "other.zarr")
    shutil.rmtree(store / "effect")
    shutil.copytree(tmp_path / "other.zarr" / "effect", store / "effect")
    with pytest.raises(SpecError, match="damaged: effect is not what was saved"):
        files.open(store)


def test_changed_provenance_is_named(store):
    meta = json.loads((store / "zarr.json").read_text())
    meta["attributes"]["note"] = "u"
    (store / "zarr.json").write_text(json.dumps(meta))
    with pytest.raises(SpecError, match="damaged: attributes is not what was saved"):
        files.open(store)
