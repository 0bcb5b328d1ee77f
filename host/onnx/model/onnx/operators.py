"""Writes operators.txt: what ONNX says of its operators' inputs, outputs and attributes, by version.

    python host/onnx/model/onnx/operators.py >host/onnx/model/onnx/operators.txt    # the onnx of models/export/requirements.txt
"""
import onnx
from onnx import defs

KINDS = {1: "float", 2: "int", 3: "string", 6: "floats", 7: "ints", 8: "strings"}


def most(count):
    return "*" if count > 1000 else str(count)


def attribute(a):
    kind = KINDS.get(int(a.type.value), "graph")
    text = f"{a.name}:{kind}"
    if not a.default_value.type:
        return text + ("!" if a.required else "")
    value = onnx.helper.get_attribute_value(a.default_value)
    if kind == "string":
        return f"{text}={value.decode()}"
    if kind == "ints":
        return f"{text}={','.join(map(str, value))}"
    return f"{text}={value:.9g}" if kind in ("int", "float") else text


print("# Written by operators.py with onnx", onnx.__version__)
schemas = [s for s in defs.get_all_schemas_with_history() if s.domain == "" and not s.deprecated]
for s in sorted(schemas, key=lambda s: (s.name, s.since_version)):
    print(s.name, s.since_version, f"{s.min_input}-{most(s.max_input)}", f"{s.min_output}-{most(s.max_output)}",
          *(attribute(s.attributes[name]) for name in sorted(s.attributes)))
