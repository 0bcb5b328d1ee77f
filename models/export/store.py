"""Writes fixtures: deterministic gzip, and one manifest that says what stands where."""

import gzip
import io
import json
import re
from pathlib import Path

import onnx

import learned

GRAPHS = Path(__file__).resolve().parent.parent / "graphs"
MANIFEST = GRAPHS / "manifest.json"
# What may not stand in a fixture: names of places on the exporting machine.
MACHINE_PATHS = re.compile(rb"/(root|tmp|home|work|usr)/|site-packages|File \"")
# Kept floating-point tensors above this many values must be known not to be learned.
KEPT_LIMIT = 4096


def strip(model):
    """Removes what tells of the exporting machine and nothing that ORT reads."""
    model.doc_string = ""
    model.graph.doc_string = ""
    del model.metadata_props[:]

    def nodes_of(nodes):
        for node in nodes:
            node.doc_string = ""
            del node.metadata_props[:]
            for attribute in node.attribute:
                attribute.doc_string = ""
                if attribute.HasField("g"):
                    graph(attribute.g)
                for g in attribute.graphs:
                    graph(g)

    def graph(g):
        g.doc_string = ""
        del g.metadata_props[:]
        for value in [*g.input, *g.output, *g.value_info]:
            value.doc_string = ""
            del value.metadata_props[:]
        for tensor in g.initializer:
            tensor.doc_string = ""
            del tensor.metadata_props[:]
        nodes_of(g.node)

    graph(model.graph)
    for function in model.functions:
        function.doc_string = ""
        del function.metadata_props[:]
        nodes_of(function.node)
    for tensor in learned.model_tensors(model):
        tensor.doc_string = ""


def count_nodes(model):
    def of(nodes):
        total = 0
        for node in nodes:
            total += 1
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    total += of(attribute.g.node)
                for g in attribute.graphs:
                    total += of(g.node)
        return total

    return of(model.graph.node)


def save(model, seeded, folder, name, config, exporter, quantised=None, keep=()):
    """Stores an exported model (a ModelProto or a path) without its learned weights.

    folder: path below graphs/. config: the subject's configuration (subjects.published),
    stored once a subject. exporter: versions, for the record. keep: patterns of the names of large
    tensors that are not learned.
    """
    if not isinstance(model, onnx.ModelProto):
        model = onnx.load(model)
    strip(model)
    parameters, kept = learned.take_out(model, seeded, quantised=quantised)
    if not parameters:
        raise SystemExit(f"{folder}/{name}: none of its tensors matches a parameter")
    for t in kept:
        large = t.data_type in learned.FLOATS and t.count > KEPT_LIMIT and not t.even
        if large and not any(re.search(p, t.name) for p in keep):
            raise SystemExit(f"{folder}/{name}: tensor {t.name} {t.dims} (type {t.data_type}) is neither a parameter nor known as a constant")
    for t in kept:
        if t.data_type in learned.FLOATS and t.count >= 4 and not t.even:
            print(f"{folder}/{name}: kept {t.name} {t.dims}")
    raw = model.SerializeToString(deterministic=True)
    found = MACHINE_PATHS.search(raw)
    if found:
        raise SystemExit(f"{folder}/{name}: contains {raw[found.start() - 40 : found.end() + 40]!r}")
    target = GRAPHS / folder / f"{name}.onnx.gz"
    target.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0, compresslevel=9) as stream:
        stream.write(raw)
    target.write_bytes(buffer.getvalue())

    record = {
        "exporter": folder.split("/")[0],
        "name": name if "/" not in folder else f"{folder.split('/')[1]}/{name}",
        "path": str(target.relative_to(GRAPHS)),
        "config": store_config(config, folder, name),
        "made_by": exporter,
        "opset": {o.domain or "ai.onnx": o.version for o in model.opset_import},
        "nodes": count_nodes(model),
        "parameters": len(parameters),
        "kept": [{"name": t.name, "dims": t.dims} for t in kept if t.count > 256],
    }
    update_manifest(record)
    print(f"{record['path']}: {record['nodes']} nodes, {len(parameters)} parameters, {len(buffer.getvalue())} bytes")
    return target


def store_config(config, folder, name):
    """Writes config.json beside a full-size subject, configs/<type>.json for a tiny one, families/<name>.json for a family.

    Exporters need different releases of Transformers, which write different fields:
    those of a tiny subject are the ones that the release used for optimum writes.
    """
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    full = "/" in folder or folder == "families"
    path = GRAPHS / "configs" / f"{config['model_type']}.json"
    if full:
        path = GRAPHS / folder / ("config.json" if "/" in folder else f"{name}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    if full or folder == "optimum" or not path.exists():
        path.write_text(text)
    return str(path.relative_to(GRAPHS))


def update_manifest(record):
    records = json.loads(MANIFEST.read_text())["graphs"] if MANIFEST.exists() else []
    records = [r for r in records if r["path"] != record["path"]] + [record]
    records.sort(key=lambda r: r["path"])
    MANIFEST.write_text(json.dumps({"schema_version": 1, "graphs": records}, indent=1) + "\n")
