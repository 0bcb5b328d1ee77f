"""Writes numpy.npz: one small array of every type that graft ab reads."""

import numpy as np

floats = [[0, 0.5, 1], [-1, -0.25, 2.5]]
np.savez_compressed(
    "numpy.npz",
    **{t: np.array(floats, t) for t in ("float32", "float64", "float16")},
    **{t: np.array([0, 1, 2, -3], t) for t in ("int64", "int32", "int16", "int8")},
    **{t: np.array([1, 9], t) for t in ("uint64", "uint32", "uint16", "uint8")},
    bool=np.array([True, False, True]),
    scalar=np.float32(7),
    empty=np.zeros((2, 0, 4), np.float32),
)
