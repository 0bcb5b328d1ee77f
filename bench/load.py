"""Prints what the creation of a session took, as bench load-one does.

    load.py none|auto MODEL
"""

import json
import os
import sys
import time
from pathlib import Path

import onnxruntime

root = Path(__file__).resolve().parents[1]
if sys.argv[1] == "auto":
    sys.path.insert(0, str(root / "bindings" / "python"))
    os.environ.setdefault("GRAFT_BINARY", str(root / "bin" / "graft"))
    import graft

    graft.enable()
start = time.perf_counter()
session = onnxruntime.InferenceSession(sys.argv[2], providers=["CPUExecutionProvider"])
seconds = time.perf_counter() - start
fields = dict(line.split(":", 1) for line in open("/proc/self/status", encoding="ascii"))
mb = {name: int(fields[field].split()[0]) / 1024
      for name, field in (("peak_rss_mb", "VmHWM"), ("anon_mb", "RssAnon"), ("file_mb", "RssFile"))}
if sys.argv[1] == "auto" and graft.status().patched != 1:
    sys.exit(f"nothing was patched: {graft.status()}")
print(json.dumps({"seconds": seconds, **mb}))
