"""One case after another, printed: python cases.py NAME, or small for those that a small model is enough for."""
import gc, glob, json, tempfile, threading, time
from common import *
case = sys.argv[1]
TMP = tempfile.mkdtemp()
def say(*a): print(case + ":", *a, flush=True)

def bytes_():
    register()
    s = ort.InferenceSession(open(MINILM, "rb").read(), options()); say("made", s.get_providers())

def byname():  # providers=["graft"]: without options of add_provider_for_devices
    register()
    try: say(ort.InferenceSession(MINILM, providers=["graft", "CPUExecutionProvider"]).get_providers())
    except Exception as e: say(type(e).__name__, str(e)[:300])

def subset():
    register(); so = options(); s = ort.InferenceSession(MINILM, so)
    x = inputs(s, 8, 64)
    o = [v.name for v in s.get_outputs()]; say(o)
    for w in ([o[0]], [o[1]], o):
        say(w, [v.shape for v in s.run(w, x)])

def binding():
    register(); s = ort.InferenceSession(MINILM, options()); x = inputs(s, 8, 64)
    b = s.io_binding(); o = s.get_outputs()
    for k, v in x.items(): b.bind_cpu_input(k, v)
    r = s.run(None, x)
    outs = [np.zeros_like(v) for v in r]
    vals = [ort.OrtValue.ortvalue_from_numpy(v) for v in outs]
    for v, i in zip(vals, o): b.bind_ortvalue_output(i.name, v)
    s.run_with_iobinding(b)
    say("equal", all((v.numpy() == q).all() for v, q in zip(vals, r)))
    b2 = s.io_binding()
    for k, v in x.items(): b2.bind_cpu_input(k, v)
    for i in o: b2.bind_output(i.name)
    s.run_with_iobinding(b2); say("unbound equal", all((v == q).all() for v, q in zip(b2.copy_outputs_to_cpu(), r)))

def cancel():
    register()
    for kind in ("ep", "plain"):
        s = ort.InferenceSession(MINILM, options()) if kind == "ep" else ort.InferenceSession(MINILM, providers=CPU)
        x = inputs(s, 32, 128)
        b = time.perf_counter(); s.run(None, x); whole = time.perf_counter() - b
        ro = ort.RunOptions(); 
        def stop(): ro.terminate = True
        t = threading.Timer(whole / 5, stop); t.start()
        b = time.perf_counter()
        try: s.run(None, x, ro); say(kind, "ran to the end", time.perf_counter() - b, whole)
        except Exception as e: say(kind, f"ended after {time.perf_counter() - b:.3f} of {whole:.3f} s:", type(e).__name__, str(e).strip()[:150])
        t.join()
        s.run(None, x); say(kind, "runs after it")

def profile():
    register()
    for kind in ("ep", "plain"):
        so = options() if kind == "ep" else ort.SessionOptions()
        so.enable_profiling = True; so.profile_file_prefix = f"{TMP}/prof_{kind}"
        s = ort.InferenceSession(MINILM, so, **({} if kind == "ep" else {"providers": CPU}))
        s.run(None, inputs(s, 2, 16))
        f = s.end_profiling(); del s; gc.collect(); time.sleep(1)
        ev = json.load(open(f)); say(kind, f, len([e for e in ev if e["cat"] == "Node"]), "node events", sorted({e["args"].get("op_name") for e in ev if e["cat"] == "Node"})[:8])
    say(sorted(glob.glob(f"{TMP}/prof_ep*")))

def errors():
    register()
    for kind in ("ep", "plain"):
        s = ort.InferenceSession(MINILM, options()) if kind == "ep" else ort.InferenceSession(MINILM, providers=CPU)
        x = inputs(s, 2, 16); n = list(x)
        for name, y in (("rank", {**x, n[0]: x[n[0]][0]}), ("type", {**x, n[0]: x[n[0]].astype(np.float32)}), ("missing", {k: x[k] for k in n[1:]}),
                        ("lengths", {**x, "attention_mask": x["attention_mask"][:, :7]}), ("range", {**x, "input_ids": x["input_ids"] + 10**8})):
            try: s.run(None, y); say(kind, name, "no error")
            except Exception as e: say(kind, name, type(e).__name__, str(e).strip()[-330:])

def unregister():
    register(); s = ort.InferenceSession(MINILM, options()); x = inputs(s, 2, 16); r = s.run(None, x)
    registered.discard("graft")
    try: ort.unregister_execution_provider_library("graft"); say("unregistered while a session is there")
    except Exception as e: say("refused", str(e)[:200])
    say("runs", (s.run(None, x)[0] == r[0]).all())
    del s; gc.collect(); say("session released")
    register(); s = ort.InferenceSession(MINILM, options()); say("registered again, equal", (s.run(None, x)[0] == r[0]).all())

def twice():
    register()
    try: ort.register_execution_provider_library("graft", LIB); say("no error")
    except Exception as e: say(type(e).__name__, str(e)[:200])
    try: register("graft2"); s = ort.InferenceSession(MINILM, options("graft2")); say("a second name", s.get_providers()); say(ort.InferenceSession(MINILM, options("graft")).get_providers())
    except Exception as e: say("second name", type(e).__name__, str(e)[:200])

def threads():
    register(); s = ort.InferenceSession(MINILM, options()); x = [inputs(s, 2, 8 + i, seed=i) for i in range(8)]
    want = [s.run(None, v) for v in x]; bad = []
    def work(i):
        for k in range(40):
            r = s.run(None, x[(i + k) % 8])
            if any((a != b).any() for a, b in zip(r, want[(i + k) % 8])): bad.append(i)
    ts = [threading.Thread(target=work, args=(i,)) for i in range(4)]; [t.start() for t in ts]; [t.join() for t in ts]
    say("other answers in", len(bad), "of 160 runs")
    made = []
    def make(): made.append(ort.InferenceSession(MINILM, options()))
    ts = [threading.Thread(target=make) for i in range(4)]; [t.start() for t in ts]; [t.join() for t in ts]
    say(len(made), "sessions made at once"); n = len(os.listdir("/proc/self/task")); say(n, "threads in the process")

def many():
    register(); m = lambda: next(int(l.split()[1]) / 1000 for l in open("/proc/self/status") if l.startswith("RssAnon"))
    for i in range(12):
        s = ort.InferenceSession(MINILM, options()); s.run(None, inputs(s, 2, 16)); del s; gc.collect()
        if i in (1, 11): say(i + 1, "sessions made and released, anonymous MB", m())

def parallel():
    register(); so = options(execution_mode=ort.ExecutionMode.ORT_PARALLEL, intra_op_num_threads=1, inter_op_num_threads=2)
    s = ort.InferenceSession(MINILM, so); x = inputs(s, 2, 16); p = ort.InferenceSession(MINILM, providers=CPU)
    say(max(np.abs(a - b).max() for a, b in zip(s.run(None, x), p.run(None, x))))

def threadcount():
    register(); n = lambda: len(os.listdir("/proc/self/task"))
    a = n(); p = ort.InferenceSession(MINILM, options(intra_op_num_threads=4)); b = n(); q = ort.InferenceSession(MINILM, options2(intra_op_num_threads=4), providers=CPU); say("provider adds", b - a, "threads, plain", n() - b)
def options2(**o):
    so = ort.SessionOptions(); [setattr(so, k, v) for k, v in o.items()]; return so

def controlflow():
    from onnx import helper as h, TensorProto as T, numpy_helper as nh; import onnx
    register()
    inner = h.make_graph([h.make_node("Mul", ["y", "two"], ["z1"])], "t", [], [h.make_tensor_value_info("z1", T.FLOAT, None)])
    other = h.make_graph([h.make_node("Add", ["y", "two"], ["z2"])], "e", [], [h.make_tensor_value_info("z2", T.FLOAT, None)])
    g = onnx.load(MINILM)
    n = g.graph.output[0].name
    g.graph.initializer.append(nh.from_array(np.float32(2), "two")); g.graph.input.append(h.make_tensor_value_info("cond", T.BOOL, []))
    g.graph.node.append(h.make_node("Identity", [n], ["y"]))
    g.graph.node.append(h.make_node("If", ["cond"], ["z"], then_branch=inner, else_branch=other))
    g.graph.output.append(h.make_tensor_value_info("z", T.FLOAT, None))
    onnx.save(g, f"{TMP}/cf.onnx")
    s = ort.InferenceSession(f"{TMP}/cf.onnx", options()); p = ort.InferenceSession(f"{TMP}/cf.onnx", providers=CPU)
    x = {k: v for k, v in inputs(s, 2, 16).items() if k != "cond"}
    for c in (True, False):
        f = {**x, "cond": np.array(c)}
        say(c, [float(np.abs(a - b).max()) for a, b in zip(s.run(None, f), p.run(None, f))])

def unused():
    import onnx; from onnx import helper as h, TensorProto as T
    register()
    g = onnx.load(MINILM); g.graph.input.append(h.make_tensor_value_info("unused", T.INT64, [1])); onnx.save(g, f"{TMP}/unused.onnx")
    s = ort.InferenceSession(f"{TMP}/unused.onnx", options()); x = inputs(s, 2, 16); x["unused"] = np.zeros(1, np.int64); s.run(None, x); say("runs")
    with graft.enabled(strict=True): ort.InferenceSession(f"{TMP}/unused.onnx", providers=CPU).run(None, x); say("wrapper", graft.status().patched)

def nobinary():
    os.environ["GRAFT_BINARY"] = "/nowhere/graft"; os.environ["XDG_CACHE_HOME"] = TMP
    register(); s = ort.InferenceSession(MINILM, options()); s.run(None, inputs(s, 2, 16)); say("runs", s.get_providers())

def optimized():
    register(); so = options(); so.optimized_model_filepath = f"{TMP}/opt.onnx"
    try:
        s = ort.InferenceSession(MINILM, so); s.run(None, inputs(s, 2, 16)); say("runs;", os.path.exists(f"{TMP}/opt.onnx"), "written")
    except Exception as e: say(type(e).__name__, str(e)[:300])

def merged():
    register(); m = os.path.join(ROOT, "models/g2p/decoder_model_merged.onnx")
    s = ort.InferenceSession(m, options()); p = ort.InferenceSession(m, providers=CPU)
    with graft.enabled(): ort.InferenceSession(m, providers=CPU)
    say(str(graft.status())); rng = np.random.default_rng(1)
    say([(i.name, i.shape, i.type) for i in s.get_inputs()][:9])
    f = {}
    for i in s.get_inputs():
        if i.name == "use_cache_branch": f[i.name] = np.array([False]); continue
        d = [v if isinstance(v, int) else 0 if "past" in i.name and k == 2 and "encoder" not in i.name else {0: 2}.get(k, 5) for k, v in enumerate(i.shape)]
        f[i.name] = rng.integers(1, 20, d) if "int64" in i.type else rng.normal(size=d).astype(np.float32)
        if "mask" in i.name: f[i.name][:] = 1
    say("greatest difference", max(float(np.abs(a - b).max()) for a, b in zip(s.run(None, f), p.run(None, f)) if a.size))

def small():
    import common
    global MINILM
    big = MINILM
    MINILM = os.path.join(ROOT, "models/encoders/embedder/onnx/model.onnx"); common.VOCAB = 30
    global case
    for case in "subset bytes_ byname binding errors merged profile threads unregister twice optimized".split():
        try: globals()[case]()
        except Exception as e: say("RAISED", type(e).__name__, str(e)[:400])
    case = "cancel"; MINILM = big; common.VOCAB = 20000

globals()[case]()
