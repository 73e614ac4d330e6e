"""The restricted reader: arrays and tensors come through as they were, everything else is refused by name."""

import collections
import io
import os
import pickle

import numpy as np
import pytest
import torch

from stepformer.base.safe_pickle import RefusedError, load_restricted
from stepformer.errors import InputError

SAMPLE = {
    "name": "video",
    "json": {"phrases": ["a", "b"], "start": [0.0, 1.5], "none": None, "set": {1, 2}},
    "array": np.arange(6, dtype=np.float32).reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "text": np.array(["ab", "c"]),
    "big": np.arange(3, dtype=">f4"),
    "big fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)).astype(">f8"),
    "scalar": np.float32(2.5),
    "tensor": torch.arange(6, dtype=torch.float16).view(2, 3).t(),
    "parameter": torch.nn.Parameter(torch.ones(2)),
    "ordered": collections.OrderedDict(a=1),
}


class Evil:
    def __init__(self, call, *args, state=None):
        self.call, self.args, self.state = call, args, state

    def __reduce__(self):
        return (self.call, self.args) if self.state is None else (self.call, self.args, self.state)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_arrays_and_tensors_come_through(protocol):
    out = load_restricted(pickle.dumps(SAMPLE, protocol=protocol))
    assert out["name"] == "video" and out["json"] == SAMPLE["json"] and out["ordered"] == SAMPLE["ordered"]
    for key in ("array", "fortran", "text"):
        assert np.array_equal(out[key], SAMPLE[key]) and out[key].dtype == SAMPLE[key].dtype
    for key in ("big", "big fortran"):
        assert np.array_equal(out[key], SAMPLE[key])
    assert out["scalar"] == np.float32(2.5)
    assert torch.equal(out["tensor"], SAMPLE["tensor"]) and out["tensor"].dtype == torch.float16
    assert torch.equal(out["parameter"], torch.ones(2))


def test_a_tensor_with_attributes_comes_through_plain():
    tensor = torch.ones(2)
    tensor.note = "mine"
    assert torch.equal(load_restricted(pickle.dumps(tensor)), torch.ones(2))


def test_forged_arrays_are_refused():
    """Bytes are never taken for pointers to objects, whatever flags the dtype claims; records are not read."""
    rebuild = np.ones(1).__reduce__()[0]
    objects = Evil(np.dtype, "O8", False, True, state=(3, "|", None, None, None, -1, -1, 0))
    forged = Evil(rebuild, np.ndarray, (0,), b"b", state=(1, (1,), objects, False, b"A" * 8))
    with pytest.raises(InputError):
        load_restricted(pickle.dumps(forged))
    with pytest.raises(RefusedError, match="records"):
        load_restricted(pickle.dumps(np.zeros(2, [("a", "f4")])))
    with pytest.raises(RefusedError, match="rebuilds a tensor"):
        rebuild = torch._tensor._rebuild_from_type_v2
        load_restricted(pickle.dumps(Evil(rebuild, collections.OrderedDict, torch.Tensor, (), {})))
    with pytest.raises(InputError):
        load_restricted(pickle.dumps(Evil(np.ndarray, (2,), "f8")))


@pytest.mark.parametrize("zipped", [True, False])
def test_torch_files_are_read(tmp_path, zipped):
    path = tmp_path / "x.pth"
    torch.save({"w": torch.eye(2)}, path, _use_new_zipfile_serialization=zipped)
    assert torch.equal(load_restricted(path)["w"], torch.eye(2))


@pytest.mark.parametrize(
    ("call", "args", "named"),
    [
        (os.system, ("true",), "system"),
        (eval, ("1+1",), "eval"),
        (getattr, ("abc", "upper"), "getattr"),
        (np.load, ("/etc/passwd",), "load"),
        (print, ("x",), "print"),
    ],
)
def test_any_other_name_is_refused_by_name(call, args, named):
    with pytest.raises(RefusedError, match=named):
        load_restricted(pickle.dumps({"x": Evil(call, *args)}))


def test_nothing_of_a_refused_pickle_runs(tmp_path):
    flag = tmp_path / "ran"
    for data in (pickle.dumps(Evil(os.mkdir, str(flag))), _torch_bytes(Evil(os.mkdir, str(flag)))):
        with pytest.raises(RefusedError):
            load_restricted(data)
    assert not flag.exists()


def test_code_hidden_in_a_tensors_storage_does_not_run(tmp_path):
    flag = tmp_path / "ran"
    inner = _torch_bytes(Evil(os.mkdir, str(flag)))
    with pytest.raises(InputError):
        load_restricted(pickle.dumps(Evil(torch.storage._load_from_bytes, inner)))
    assert not flag.exists()


def test_arrays_of_objects_keep_to_the_list_too():
    with pytest.raises(RefusedError, match="system"):
        load_restricted(pickle.dumps(np.array([Evil(os.system, "true")], dtype=object)))


def test_the_torch_message_does_not_advise_to_skip_the_check():
    with pytest.raises(RefusedError) as caught:
        load_restricted(_torch_bytes(Evil(os.system, "true")))
    assert "system" in str(caught.value) and "weights_only" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"hello", b"\x80\x04", b"PK\x03\x04 not a zip", b"F1e400\n.", b"Fx\n."])
def test_damaged_files_are_input_errors(data):
    with pytest.raises(InputError) as caught:
        load_restricted(data)
    assert "\n" not in str(caught.value)


def test_a_pickle_of_nine_bytes_gets_no_gigabytes():
    """Its memo index asks for room for two billion values."""
    with pytest.raises(InputError, match="asks for 2147483647 places in memory"):
        load_restricted(b"\x80\x04Nr\xff\xff\xff\x7f.")


def test_a_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="there is no file"):
        load_restricted(tmp_path / "nothing.pkl")


def _torch_bytes(value) -> bytes:
    buffer = io.BytesIO()
    torch.save({"x": value}, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_very_long_name_in_a_torch_file_is_refused_at_once(tmp_path, zipped):
    """torch searches the message that names it in quadratic time: a hundred kilobytes took over ten seconds."""
    path = tmp_path / "w.pth"
    torch.save({"a" * 30: torch.ones(200_000)}, path, _use_new_zipfile_serialization=zipped)
    assert load_restricted(path)["a" * 30].shape == (200_000,)
    torch.save({"a" * 300_000: torch.ones(2)}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(RefusedError, match="over 20000 letters"):
        load_restricted(path)
