"""What is kept in the cache is used whole or not at all."""

from __future__ import annotations

import numpy as np

from stepformer.base.cache import keep_arrays, kept_arrays


def test_every_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "a.safetensors"
    arrays = {"vectors": np.arange(12, dtype=np.float32).reshape(3, 4), "structure": np.ones((3, 2), np.float16)}
    assert keep_arrays(path, arrays, {"rate_hz": 1.0})
    found, info = kept_arrays(path)
    assert info == {"rate_hz": 1.0}
    assert all((found[name] == arrays[name]).all() for name in arrays)
    whole = path.read_bytes()
    for at in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << at % 8
        path.write_bytes(damaged)
        kept = kept_arrays(path)
        # a flip that changes nothing that is read (white space in the header, say) may pass; other values may not
        if kept is not None:
            assert kept[1] == info
            assert all((kept[0][name] == arrays[name]).all() for name in arrays), at
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert kept_arrays(path) is None


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(tmp_path):
    (tmp_path / "file").write_text("")
    assert not keep_arrays(tmp_path / "file" / "a.safetensors", {"x": np.zeros(3)})
    assert kept_arrays(tmp_path / "nothing.safetensors") is None
