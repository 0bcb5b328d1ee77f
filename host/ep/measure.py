"""CPU time of the process, with one thread a session, because other work has the machine.

python measure.py run ROWS TOKENS PAIRS | load ROUNDS | one KIND"""
import json, statistics, subprocess, sys, time
from common import *

def make(kind, model, so=None):
    so = so or ort.SessionOptions(); so.intra_op_num_threads = 1
    if kind == "plain":
        return ort.InferenceSession(model, so, providers=CPU)
    if kind == "graft":
        with graft.enabled(strict=True):
            return ort.InferenceSession(model, so, providers=CPU)
    return ort.InferenceSession(model, options(intra_op_num_threads=1))

def interval(x):
    x = np.sort(np.log(x)); rng = np.random.default_rng(0)
    m = np.median(rng.choice(x, (2000, len(x))), axis=1)
    return f"{np.exp(np.median(x)):.3f} [{np.exp(np.quantile(m, .025)):.3f}, {np.exp(np.quantile(m, .975)):.3f}]"

def run(rows, n, pairs):
    register()
    s = {k: make(k, MINILM) for k in ("plain", "graft", "ep")}
    x = inputs(s["plain"], rows, n)
    a = {k: v.run(None, x) for k, v in s.items()}
    a = {k: v.run(None, x) for k, v in s.items()}
    for k in ("graft", "ep"):
        for p, q in zip(a["plain"], a[k]):
            keep = np.ones(p.shape[:2], bool) if p.ndim == 2 else x["attention_mask"].astype(bool)
            print(k, p.shape, "greatest difference, of tokens that are seen", np.abs((p - q)[keep[:, :p.shape[1]]] if p.ndim > 2 else p - q).max())
    print("graft and ep bit-equal:", all((p == q).all() for p, q in zip(a["graft"], a["ep"])))
    t = {k: [] for k in s}
    for i in range(pairs):
        for k in (("plain", "graft", "ep") if i % 2 == 0 else ("ep", "graft", "plain")):
            b = time.process_time(); s[k].run(None, x); t[k].append(time.process_time() - b)
    t = {k: np.array(v) for k, v in t.items()}
    print(f"{rows} rows of {n}: " + ", ".join(f"{k} {1e3*np.median(v):.2f} ms (least {1e3*v.min():.2f})" for k, v in t.items()))
    for p, q in (("plain", "graft"), ("plain", "ep"), ("graft", "ep")):
        print(f"  {p}/{q} {interval(t[p] / t[q])} of pairs; of least {t[p].min()/t[q].min():.3f}")

def one(kind, model):
    if kind == "ep": register()
    b = time.process_time(); s = make(kind, model); took = time.process_time() - b
    peak = next(int(l.split()[1]) / 1000 for l in open("/proc/self/status") if l.startswith("VmHWM"))
    s.run(None, inputs(s, 1, 16))
    m = {l.split(":")[0]: int(l.split()[1]) / 1000 for l in open("/proc/self/status") if l[:5] in ("RssAn", "VmRSS", "VmHWM")}
    print(json.dumps(dict(seconds=took, peak=peak, anon=m["RssAnon"], rss=m["VmRSS"], peak_run=m["VmHWM"])))

def load(rounds, model=MINILM):
    register()
    for k in ("graft", "ep"): make(k, model)
    kinds = ("plain", "graft", "ep"); found = {k: [] for k in kinds}
    for i in range(rounds):
        for k in kinds if i % 2 else reversed(kinds):
            p = subprocess.run([sys.executable, __file__, "one", k, model], check=True, capture_output=True, text=True)
            found[k].append(json.loads(p.stdout))
    for w in found["plain"][0]:
        print(w, {k: round(statistics.median(x[w] for x in found[k]), 3) for k in kinds})

a = [int(x) if x.isdigit() else x for x in sys.argv[2:]]
{"run": run, "load": load, "one": one}[sys.argv[1]](*a)
