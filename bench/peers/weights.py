"""The weights of a subject, the same numbers that models/ fills its graphs with.

Nothing but NumPy and the stored graphs is needed: each names the parameters that
it is made of and how their values are drawn (models/README.md, "The weights").
"""

import gzip
import json
import sys
from pathlib import Path

import onnx

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "models" / "export"))

import seeded  # noqa: E402  (models/export)

SEED = 1  # models.DefaultSeed


def config(subject):
    """The subject's config.json."""
    return json.loads((ROOT / "models/graphs/full" / subject / "config.json").read_text())


class Weights:
    """Parameters of a subject by their names in its training framework."""

    def __init__(self, subject):
        self.config = config(subject)
        self._drawn = {}
        for path in sorted((ROOT / "models/graphs/full" / subject).glob("*.onnx.gz")):
            model = onnx.load_from_string(gzip.decompress(path.read_bytes()))
            for tensor in model.graph.initializer:
                self._read(tensor)

    def _read(self, tensor):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            return
        values = {}
        for entry in [*tensor.external_data, None]:
            if (entry is None or entry.key == "name") and values:
                self._drawn[values["name"]] = seeded.Seeded(
                    values["name"], tuple(int(d) for d in values["shape"].split(",")),
                    values["distribution"], float(values["mean"]), float(values["scale"]))
                values = {}
            if entry is not None and (entry.key == "name" or values):
                values[entry.key] = entry.value

    def __contains__(self, name):
        return name in self._drawn

    def __getitem__(self, name):
        """Values of a parameter, float32, in its own shape."""
        return self._drawn[name].values(SEED)


def normal(name, shape):
    """Values of mean 0 and deviation 1, as Go's models.Normal draws them from SEED."""
    return seeded.Seeded(name, tuple(shape), "normal", 0.0, 1.0).values(SEED)
