"""Cases of the package graft in Python: python cases.py NAME runs one, and ends with 0 if it holds."""

import concurrent.futures
import gc
import multiprocessing
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession  # before enable

from common import (BINARY, CPU, EMBEDDER, ENCODER, HERE, MERGED, MODEL, VERSION, Warnings, agree, copied, differ, environment, feeds, graft, last,
                    perturbed, plain, raises, script, stored)

# --- how sessions are made ---


def case_ways():
    """Every way to make a session gives a patched one, which shows what the program's model shows."""
    reference = plain(MODEL)
    inputs = feeds(reference)
    want = reference.run(None, inputs)
    graft.enable(strict=True)

    class Sub(InferenceSession):
        def __init__(self, path, **keywords):
            self.name = "sub"
            super().__init__(path, **keywords)

        def run(self, output_names, input_feed, run_options=None):
            return super().run(output_names, input_feed, run_options)

    class Pickled(InferenceSession):
        def __init__(self, path):
            self.path = path
            super().__init__(path, providers=CPU)

        def __getstate__(self):
            return {"path": self.path}

        def __setstate__(self, values):
            self.__init__(values["path"])

    globals()["Pickled"], Pickled.__qualname__ = Pickled, "Pickled"
    data = pathlib.Path(MODEL).read_bytes()
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    sessions = {
        "module": ort.InferenceSession(MODEL, providers=CPU),
        "imported before": InferenceSession(MODEL, providers=CPU),
        "no providers": InferenceSession(MODEL),
        "all providers": InferenceSession(MODEL, None, ort.get_available_providers()),
        "provider that is not there": InferenceSession(MODEL, providers=["CUDAExecutionProvider", "CPUExecutionProvider"]),
        "provider with options": InferenceSession(MODEL, providers=[("CPUExecutionProvider", {})]),
        "provider options": InferenceSession(MODEL, options, CPU, [{}]),
        "path object": InferenceSession(pathlib.Path(MODEL), providers=CPU),
        "relative": InferenceSession(os.path.relpath(MODEL), providers=CPU),
        "keyword": InferenceSession(path_or_bytes=MODEL, sess_options=options, providers=CPU),
        "the options again": InferenceSession(MODEL, options, CPU),
        "bytes": InferenceSession(data, providers=CPU),
        "bytes again": InferenceSession(data, options, CPU),
        "disabled optimizers": InferenceSession(MODEL, providers=CPU, disabled_optimizers=["ConstantFolding"]),
        "no fallback": InferenceSession(MODEL, providers=CPU, enable_fallback=0),
        "subclass": Sub(MODEL, providers=CPU),
        "pickled": pickle.loads(pickle.dumps(Pickled(MODEL))),
    }
    for name, s in sessions.items():
        assert s._graft.session.patched and s._graft.session.replaced == 10, name
        agree(want, s.run(None, inputs))
        agree(want[:1], s.run([reference.get_outputs()[0].name], inputs))
        shows(reference, s)
        assert s._model_path is None if "bytes" in name else os.path.samefile(s._model_path, MODEL), name
        assert s._model_bytes is (data if "bytes" in name else None), name
    assert sessions["subclass"].name == "sub"
    assert graft.status().patched == len(sessions) + 1 and graft.status().plain == 0
    raises(TypeError, "Unable to load from type", InferenceSession, 5)
    graft.enable()
    for wrong in ([5], [("CPUExecutionProvider", 5)]):  # ONNX Runtime's error, and not graft's
        if VERSION < (1, 23):  # which always goes on with the providers that there are
            assert InferenceSession(MODEL, providers=wrong).get_providers() == CPU
        else:
            raises(ValueError, "'providers'", InferenceSession, MODEL, providers=wrong, enable_fallback=0)
    raises(Exception, "doesn't exist", InferenceSession, MODEL + ".not", providers=CPU)


def shows(a, b):
    """Whether b shows of its model what a does."""
    for values in ("get_inputs", "get_outputs", "get_overridable_initializers"):
        one, two = ([(x.name, x.type, x.shape) for x in getattr(s, values)()] for s in (a, b))
        assert one == two, (values, one, two)
    for name in ("producer_name", "graph_name", "domain", "description", "graph_description", "version", "custom_metadata_map"):
        assert getattr(a.get_modelmeta(), name) == getattr(b.get_modelmeta(), name), name


def case_calls():
    """Every way to run a patched session gives the answers of the plain one."""
    reference = plain(MODEL)
    inputs = feeds(reference)
    want = reference.run(None, inputs)
    names = [o.name for o in reference.get_outputs()]
    graft.enable(strict=True)
    s = InferenceSession(MODEL, providers=CPU)
    values = {k: ort.OrtValue.ortvalue_from_numpy(v) for k, v in inputs.items()}
    agree(want, [v.numpy() for v in s.run_with_ort_values(None, values)])
    binding = s.io_binding()
    for k, v in values.items():
        binding.bind_ortvalue_input(k, v)
    for n in names:
        binding.bind_output(n)
    s.run_with_iobinding(binding)
    agree(want, binding.copy_outputs_to_cpu())
    done, found = threading.Event(), []

    def callback(results, data, err):
        found.append((results, data, err))
        done.set()

    s.run_async(None, inputs, callback, "mine")
    assert done.wait(60)
    assert found[0][1:] == ("mine", "")
    agree(want, found[0][0])
    raises(ValueError, "Required inputs", s.run, None, {})
    agree(want, s.run(None, inputs, ort.RunOptions()))
    # set_providers makes the session anew, of the program's model
    s.set_providers(CPU)
    assert s._graft.session.patched and graft.status().patched == 2
    agree(want, s.run(None, inputs))
    graft.disable()
    s.set_providers(CPU)
    assert not hasattr(s, "_graft")
    agree(want, s.run(None, inputs))
    assert graft.status().patched == 2 and not graft.status().enabled


def case_models():
    """Branches, weights in other files, weights of a wrong name: graphs of every form that is patched."""
    graft.enable(strict=True)
    for model, blocks in ((MERGED, 1), (EMBEDDER, 1)):
        reference = plain(model)
        s = InferenceSession(model, providers=CPU)
        assert s._graft.session.replaced >= blocks, model
        inputs = feeds(reference)
        agree(reference.run(None, inputs), s.run(None, inputs))
        if model == MERGED:
            inputs["use_cache_branch"] = np.zeros(1, np.bool_)
            agree(reference.run(None, inputs), s.run(None, inputs))
        shows(reference, s)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "with data ü.onnx")
        onnx.save(onnx.load(MODEL), path, save_as_external_data=True, location="weights of it.bin", size_threshold=0)
        s = InferenceSession(path, providers=CPU)
        reference = plain(path)
        inputs = feeds(reference)
        agree(reference.run(None, inputs), s.run(None, inputs))
        assert s._graft.session.replaced == 10
        shows(reference, s)
    graft.enable(padding="ignore", strict=True)
    s = InferenceSession(EMBEDDER, providers=CPU)
    inputs = feeds(s)
    rows = s.run(None, inputs)[0]
    assert (rows[0, -1] == 0).all() and (rows[1] != 0).any(), "a hidden token has no row of zeros"


# --- options ---


def case_options():
    """A program's options are as they were, whatever sessions were made with them, and those of a session are a copy of them."""
    graft.enable(strict=True)
    reference = plain(MODEL)
    inputs = feeds(reference)
    want = reference.run(None, inputs)
    options = ort.SessionOptions()
    options.add_session_config_entry("mine", "1")
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.add_free_dimension_override_by_name("batch_size", 2)
    for _ in range(2):
        s = InferenceSession(MODEL, options, CPU)
        assert s._graft.session.patched
        agree(want, s.run(None, inputs))
        assert s.get_inputs()[0].shape[0] == 2  # the override holds
        theirs = s.get_session_options()
        assert theirs is not options and theirs.get_session_config_entry("mine") == "1" and theirs.intra_op_num_threads == 1
        for o in (options, theirs):
            for name in (graft._options.FOLDER, graft._options.DOMAIN):
                raises(RuntimeError, name, o.get_session_config_entry, name)
    again = InferenceSession(MODEL, s.get_session_options(), CPU)
    assert again._graft.session.patched
    # The same options make a plain session, and one of a file that brings graft's operators.
    graft.disable()
    agree(want, InferenceSession(MODEL, options, CPU).run(None, inputs))
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "patched.onnx")
        subprocess.run([BINARY, "patch", MODEL, "-o", out], check=True, capture_output=True)
        for library in stored_libraries():
            options.register_custom_ops_library(library)
        agree(want, InferenceSession(out, options, CPU).run(None, inputs))
        graft.enable()
        agree(want, InferenceSession(MODEL, options, CPU).run(None, inputs))
        assert "registered graft's operators" in last().reason and not last().failed


BEFORE = """
import sys
import numpy as np, onnxruntime as ort
from onnxruntime import SessionOptions
path, weight = sys.argv[1:]
def options(given):
    o = SessionOptions()
    if given: o.add_initializer(weight, value)
    return o
value = ort.OrtValue.ortvalue_from_numpy(np.load(path + ".npy"))
early = [options(given) for given in (False, True)]
first = ort.InferenceSession(path, early[1], ["CPUExecutionProvider"])
reference = [ort.InferenceSession(path, o, ["CPUExecutionProvider"]) for o in early]
sys.path.insert(0, {here!r})
from common import *
between = [options(given) for given in (False, True)]
made = ort.InferenceSession(path, between[1], CPU).get_session_options()
plain_made = ort.InferenceSession(path, between[0], CPU).get_session_options()
warnings = Warnings()
graft.enable()
inputs = feeds(reference[0])
wants = [r.run(None, inputs) for r in reference]
assert differ(*wants)
def session(o, given, patched, reason, warned):
    s = ort.InferenceSession(path, o, CPU)
    agree(wants[given], s.run(None, inputs))
    assert hasattr(s, "_graft") == patched and reason in last().reason and len(warnings.texts) == warned, (last(), warnings.texts)
    return s
for given in (True, False):
    session(early[given], given, False, "made before graft was imported", 1)
assert warnings.texts[0].endswith("its options were made before graft was imported, needed options of which graft knows what the program gave to them; import graft before")
for o in (between[1], made, options(True)):
    again = session(o, True, False, "initializers of the program", 1).get_session_options()
    session(again, True, False, "initializers of the program", 1)
for o in (between[0], plain_made, options(False), None):
    again = session(o, False, True, "", 1).get_session_options()
    session(again, False, True, "", 1)
session(first.get_session_options(), True, False, "made before graft was imported", 1)
first.set_providers(CPU)
agree(wants[True], first.run(None, inputs))
graft.enable(strict=True)
raises(graft.Error, "made before graft was imported", ort.InferenceSession, path, early[0], CPU)
"""


def case_options_before():
    """What a program gives to options before graft is enabled, and before it is imported, takes part in the answers."""
    # The rewritten graph has it as a part of another.
    weight = next(t for t in onnx.load(ENCODER).graph.initializer if t.name == "layers.0.self_attn.q_proj.bias")
    with copied(ENCODER) as path:
        np.save(path + ".npy", 2 * numpy_helper.to_array(weight))
        p = subprocess.run([sys.executable, "-c", BEFORE.format(here=HERE), path, weight.name], capture_output=True, text=True)
        assert p.returncode == 0, p.stderr[-3000:]


def stored_libraries():
    entry = next(p for p in stored() if "." not in os.path.basename(p))
    with open(entry) as f:
        return [line.split(" ", 2)[2].strip() for line in f if line.startswith("library ")]


def case_profile():
    """A session that is profiled writes one profile, as without graft."""
    graft.enable(strict=True)
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.enable_profiling, options.profile_file_prefix = True, os.path.join(folder, "p")
        s = InferenceSession(MODEL, options, CPU)
        s.run(None, feeds(s))
        assert s._graft.session.patched and options.enable_profiling
        name = s.end_profiling()
        assert os.listdir(folder) == [os.path.basename(name)]
        with open(name) as f:
            assert "FlashDecode" in f.read()
        # Threads that copy such options at once do not see each other's changes of them.
        both = threading.Barrier(2)

        class Slow:
            @staticmethod
            def InferenceSession(*arguments):
                try:
                    both.wait(1)
                except threading.BrokenBarrierError:
                    pass
                return ort.capi._pybind_state.InferenceSession(*arguments)

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            copies = [pool.submit(graft._options.copies, Slow, options, 1) for _ in range(2)]
            assert all(c.enable_profiling for f in copies for c in f.result()) and options.enable_profiling


def case_left():
    """Sessions that have to be made of the program's model alone are, without a warning, and status says why."""
    warnings = Warnings()
    graft.enable()
    reference = plain(MODEL)
    inputs = feeds(reference)
    want = reference.run(None, inputs)

    def left(reason, model=MODEL, options=None, **keywords):
        s = InferenceSession(model, options, CPU, **keywords)
        assert not hasattr(s, "_graft") and reason in last().reason and not last().failed, last()
        if not isinstance(model, bytes):
            agree(want, s.run(None, inputs))
        return s

    with tempfile.TemporaryDirectory() as folder:
        o = ort.SessionOptions()
        o.optimized_model_filepath = os.path.join(folder, "optimized.onnx")
        left("optimized model", options=o)
        assert os.path.exists(o.optimized_model_filepath)
        o = ort.SessionOptions()
        o.optimized_model_filepath = os.path.join(folder, "optimized.ort")
        o.add_session_config_entry("session.save_model_format", "ORT")
        left("optimized model", options=o)
        left("ORT's own format", model=o.optimized_model_filepath)
        left("ORT's own format", model=pathlib.Path(o.optimized_model_filepath).read_bytes())
    o = ort.SessionOptions()
    o.add_session_config_entry("graft.disable", "1")
    left("graft.disable", options=o)
    with environment(GRAFT_DISABLE="1"):
        left("GRAFT_DISABLE")
    left("read from the model", read_config_from_model=1)
    # Initializers of the program take the place of the model's.
    weight = max(onnx.load(MODEL).graph.initializer, key=lambda t: len(t.raw_data))
    value = ort.OrtValue.ortvalue_from_numpy(numpy_helper.to_array(weight))
    o = ort.SessionOptions()
    o.add_initializer(weight.name, value)
    left("initializers of the program", options=o)
    # A model in which nothing is replaced.
    nothing = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
                                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    left("nothing is replaced", model=nothing.SerializeToString())
    left("nothing is replaced", model=nothing.SerializeToString())
    assert graft.status().patched == 0 and graft.status().failed == 0 and not warnings.texts, warnings.texts


WITHOUT = """
import sys, types
def module(version):
    m = types.SimpleNamespace(__version__=version, InferenceSession=type("InferenceSession", (), {{}}), C=type("C", (), {{"InferenceSession": object}}))
    m.capi, m.onnxruntime_inference_collection = m, m
    sys.modules["onnxruntime.capi"] = sys.modules["onnxruntime.capi.onnxruntime_inference_collection"] = m
    return m
sys.modules["onnxruntime"] = {stub}
sys.path.insert(0, {package!r})
import graft
try:
    graft.enable()
except graft.Error as e:
    print(e)
"""


def case_settings():
    """Options that are wrong are one error; enabled holds in its block and thread, disable and enable everywhere."""
    raises(graft.Error, "padding: found 'none', needed one of exact, ignore, keep", graft.enable, padding="none")
    raises(graft.Error, "plugins: found []", graft.enable, plugins=[])
    raises(graft.Error, "except_: found ['a,b']", graft.enable, except_=["a,b"])
    raises(graft.Error, "plugins: found 'nope', which is no plugin, needed one of el-attention, ", graft.enable, plugins=["fused-gelu", "nope"])
    raises(graft.Error, "except_: found 'nope', which is no plugin", graft.enable, except_="nope")
    raises(graft.Error, "logger: found str", graft.enable, logger="x")
    raises(TypeError, "unexpected", graft.enable, pluggins=["x"])
    for wrong in ("x", "0", "-1", "nan", "1e9"):
        with environment(GRAFT_GRAPH_DEADLINE=wrong):
            raises(graft.Error, f"GRAFT_GRAPH_DEADLINE: found '{wrong}'", graft.enable)
    error = raises(graft.Error, "padding", graft.enable, padding=3)
    assert str(pickle.loads(pickle.dumps(error))) == str(error) and error.needed == "one of exact, ignore, keep"
    assert not graft.status().enabled
    # import graft says nothing of an onnxruntime that is missing, too old or unknown; enable does.
    for stub, text in (("None", "onnxruntime cannot be imported, needed it, 1.22 or newer; pip install onnxruntime"),
                       ("module('1.21.3')", "found onnxruntime 1.21.3, needed 1.22 or newer; pip install --upgrade onnxruntime"),
                       ("module('9.0.0')", "onnxruntime 9.0.0 has no _create_inference_session, run, ")):
        p = subprocess.run([sys.executable, "-c", WITHOUT.format(stub=stub, package=os.path.dirname(os.path.dirname(graft.__file__)))], capture_output=True, text=True)
        assert p.returncode == 0 and p.stdout.startswith(text), (p.stdout, p.stderr)

    def patched():
        return hasattr(InferenceSession(MODEL, providers=CPU), "_graft")

    assert not patched()
    with graft.enabled(plugins=["fused-gelu"], strict=True):
        assert graft.status().enabled and patched()
        assert last().replaced == 5, last()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            assert not pool.submit(patched).result()
        with graft.enabled(except_=["fused-gelu"], strict=True):
            assert patched() and last().replaced == 5
        assert patched()
    assert not patched() and not graft.status().enabled
    graft.enable(strict=True)
    assert patched() and last().replaced == 10
    o = ort.SessionOptions()
    o.add_session_config_entry("graft.plugins", "flash-decode")
    InferenceSession(MODEL, o, CPU)
    assert last().replaced == 5
    n = len(stored())
    graft.enable(padding="ignore", strict=True)
    o = ort.SessionOptions()
    o.add_session_config_entry("graft.padding", "exact")
    InferenceSession(MODEL, o, CPU)
    assert len(stored()) == n, "the default has two entries"
    o = ort.SessionOptions()
    o.add_session_config_entry("graft.padding", "some")
    raises(graft.Error, "padding: found 'some'", InferenceSession, MODEL, o, CPU)
    graft.enable(strict=True)
    o = ort.SessionOptions()
    o.add_session_config_entry("graft.plugins", "no-such")
    raises(graft.Error, "no-such", InferenceSession, MODEL, o, CPU)
    graft.disable()
    assert not patched()


# --- what may be missing or broken ---


def case_binary():
    """A command that is missing, cannot be run, fails or is killed: the plain session, and one warning a cause; with strict an error."""
    reference = plain(MODEL)
    inputs = feeds(reference)
    want = reference.run(None, inputs)
    expected = 0

    def falls_back(text):
        nonlocal expected
        warnings = Warnings()
        graft.enable()
        left = []
        for _ in range(3):
            s = InferenceSession(MODEL, providers=CPU)
            agree(want, s.run(None, inputs))
            expected += 1
            left.append(weakref.ref(s))
        del s
        gc.collect()
        assert not any(r() for r in left), "an error holds sessions"
        assert text in last().reason and last().failed, last()
        assert len(warnings.texts) == 1 and text in warnings.texts[0], warnings.texts
        assert graft.status().failed == expected
        graft.disable()
        graft._sessions._process.warned.clear()

    with tempfile.TemporaryDirectory() as folder:
        with environment(GRAFT_BINARY=os.path.join(folder, "none")):
            falls_back("found no file, needed the command graft; set GRAFT_BINARY")
            raises(graft.Error, "found no file", graft.enable, strict=True)
        text = os.path.join(folder, "text")
        pathlib.Path(text).write_text("no program")
        with environment(GRAFT_BINARY=text):
            falls_back("cannot be executed")
            os.chmod(text, 0o700)
            falls_back("cannot be run")
        # Found on PATH: a program, and not the script that pip makes.
        shutil.copy(text, os.path.join(folder, "graft"))
        with environment(GRAFT_BINARY=None, PATH=folder):
            falls_back("the command graft was not found")
        os.unlink(os.path.join(folder, "graft"))
        os.symlink(BINARY, os.path.join(folder, "graft"))
        with environment(GRAFT_BINARY=None, PATH=folder):
            graft.enable(strict=True)
            assert hasattr(InferenceSession(MODEL, providers=CPU), "_graft")
            graft.disable()
    shutil.rmtree(graft._cache.user_folder())
    with script("kill -9 $$"):
        falls_back("was ended by signal 9")
        graft.enable(strict=True)
        raises(graft.Error, "signal 9", InferenceSession, MODEL, providers=CPU)
    with script("echo graft: no luck >&2; exit 3"):
        falls_back("no luck")
    with script("exit 0"):
        falls_back("stored nothing that can be read")
    with script("exit 1"):
        falls_back("ended with 1")
    with script(f'"$GRAFT_REAL" "$@"; echo "graft graph 2\ngraph /none" > {graft._cache.user_folder()}/$4'):
        falls_back("stored nothing that can be read")
    with environment(GRAFT_PLUGIN_PATH="/nonexistent"):
        falls_back("found no plugin")
    with tempfile.TemporaryDirectory() as folder:
        plugins = shutil.copytree(os.environ["GRAFT_PLUGIN_PATH"], os.path.join(folder, "plugins"))
        for path in pathlib.Path(plugins).rglob("*.so"):
            path.write_bytes(path.read_bytes().replace(b"\0GLIBC_2.2.5\0", b"\0GLIBC_9.2.5\0"))
        with environment(GRAFT_PLUGIN_PATH=plugins):
            falls_back("version `GLIBC_9.2.5' not found")
    # a fault of the package itself
    key = graft._cache.key
    graft._cache.key = lambda *_: 1 // 0
    falls_back("ZeroDivisionError")
    graft._cache.key = key


def case_places():
    """What the command takes by other variables is another entry: a plugin that was accepted unverified is not taken where it is not."""
    key = lambda: graft._cache.key(sys.executable, [], graft._cache.Source(MODEL, None))
    with environment(**{name: None for name in graft._cache._PLACES}):
        keys = {key()}
        for name in ("GRAFT_PLUGIN_PATH", "GRAFT_PLUGIN_LOCK", "GRAFT_PLUGIN_UNVERIFIED", "XDG_DATA_HOME", "HOME"):
            for value in ("", "1"):
                with environment(**{name: value}):
                    keys.add(key())
    assert len(keys) == 11, keys


def case_hang():
    """A command that hangs is ended with what it started, and the next session does not wait."""
    reference = plain(MODEL)
    warnings = Warnings()
    with script("echo $2 >> \"${0%/*}/calls\"; sleep 1000 & echo $! > \"${0%/*}/child\"; wait") as folder, environment(GRAFT_GRAPH_DEADLINE="5"):
        graft.enable()
        for _ in range(2):
            s = InferenceSession(MODEL, providers=CPU)
        assert pathlib.Path(folder, "calls").read_text().splitlines() == [MODEL], "it is asked again"
        agree(reference.run(None, feeds(s)), s.run(None, feeds(s)))
        assert "found no end of graft graph after 5 s" in last().reason, last()
        assert len(warnings.texts) == 1, warnings.texts
        child = int(pathlib.Path(folder, "child").read_text())
        for _ in range(1000):
            if not os.path.exists(f"/proc/{child}") or pathlib.Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                break
            time.sleep(0.05)
        else:
            raise AssertionError("what the command started goes on")


def case_processor():
    """A processor without AVX2: one warning, and plain sessions."""
    warnings = Warnings()
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("processor\t: 0\nflags\t\t: fpu sse4_2 avx\n")
        f.flush()
        graft._sessions.CPUINFO = f.name
        graft.enable()
        s = InferenceSession(MODEL, providers=CPU)
        assert not hasattr(s, "_graft") and "no AVX2" in last().reason
        assert warnings.texts == ["graft: sessions run as they are: the processor has no AVX2, needed it for graft's operators"], warnings.texts
        raises(graft.Error, "no AVX2", graft.enable, strict=True)
        left = weakref.ref(InferenceSession(MODEL, providers=CPU))
        gc.collect()
        assert left() is None, "an error holds sessions"
        s.run(None, feeds(s))


def case_emulated():
    """The same on a processor that has none, emulated: ONNX Runtime runs there, and what graft brings does not."""
    from numpy._core._multiarray_umath import __cpu_features__

    assert not __cpu_features__["AVX2"]
    warnings = Warnings()
    graft.enable()
    s, reference = InferenceSession(MODEL, providers=CPU), plain(MODEL)
    assert not hasattr(s, "_graft") and "no AVX2" in last().reason and len(warnings.texts) == 1
    agree(reference.run(None, feeds(reference)), s.run(None, feeds(s)))


def case_cache_places():
    """A cache that is nowhere, cannot be written or has no room: the session is patched from a temporary folder, which is gone afterwards."""
    reference = plain(MODEL)
    inputs = feeds(reference)
    want = reference.run(None, inputs)
    graft.enable(strict=True)
    with tempfile.TemporaryDirectory() as folder:
        def patched(**env):
            with environment(TMPDIR=folder, **env):
                tempfile.tempdir = None
                s = InferenceSession(MODEL, providers=CPU)
                assert hasattr(s, "_graft")
                agree(want, s.run(None, inputs))
                assert os.listdir(folder) == []
            tempfile.tempdir = None

        patched(XDG_CACHE_HOME=None, HOME=None)
        patched(XDG_CACHE_HOME="relative", HOME="/root")
        patched(XDG_CACHE_HOME="/proc/none")
        patched(XDG_CACHE_HOME="/dev/null")
        data = pathlib.Path(MODEL).read_bytes()
        with environment(XDG_CACHE_HOME="/dev/null"):
            agree(want, InferenceSession(data, providers=CPU).run(None, inputs))
        # where others can write, nothing is read: an entry names libraries
        with tempfile.TemporaryDirectory() as open_to_all:
            with environment(XDG_CACHE_HOME=open_to_all):
                InferenceSession(MODEL, providers=CPU)
                for path in stored():
                    os.utime(path, (1, 1))
                os.chmod(graft._cache.user_folder(), 0o777)
            patched(XDG_CACHE_HOME=open_to_all)
            with environment(XDG_CACHE_HOME=open_to_all):
                assert all(os.stat(p).st_mtime == 1 for p in stored()), "it was read"
        # read only, for whoever is not root
        cache = os.path.join(folder, "cache")
        os.makedirs(os.path.join(cache, "graft", "graphs"))
        with environment(XDG_CACHE_HOME=cache):
            InferenceSession(MODEL, providers=CPU)
        places = [folder, cache, os.path.join(cache, "graft"), os.path.join(cache, "graft", "graphs")]
        for path in places:
            os.chmod(path, 0o555)
        with tempfile.TemporaryDirectory() as other:
            os.chmod(other, 0o777)
            child = os.fork()
            if child == 0:
                as_another(places[-1], other, want, inputs)
            assert os.waitpid(child, 0)[1] == 0 and os.listdir(other) == []
        for path in places:
            os.chmod(path, 0o755)


def as_another(graphs, other, want, inputs):
    """In a process of its own, of a user who may not write into the cache."""
    try:
        if os.getuid() == 0:
            os.setresgid(65532, 65532, 65532)
            os.setresuid(65532, 65532, 65532)
        with environment(XDG_CACHE_HOME=os.path.dirname(os.path.dirname(graphs)), HOME="/nonexistent", TMPDIR=other):
            tempfile.tempdir = None
            assert not os.access(graphs, os.W_OK)
            s = InferenceSession(MODEL, providers=CPU)
            assert hasattr(s, "_graft")
            agree(want, s.run(None, inputs))
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def case_cache_full():
    """No room anywhere: the plain session, one warning, and no half-written file is left or read."""
    import resource

    warnings = Warnings()
    graft.enable()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, before[1]))  # the structure fits, the weights do not
    s = InferenceSession(MODEL, providers=CPU)
    assert not hasattr(s, "_graft") and last().failed
    assert len(warnings.texts) == 1 and "cannot store a graph" in warnings.texts[0], warnings.texts
    assert not [p for p in stored() if p.endswith((".tmp", ".weights", "graph"))], stored()
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert hasattr(InferenceSession(MODEL, providers=CPU), "_graft")


def case_cache_of_others():
    """What another version wrote, and what is cut short, is made anew."""
    reference = plain(MODEL)
    inputs = feeds(reference)
    want = reference.run(None, inputs)
    graft.enable(strict=True)

    def session():
        s = InferenceSession(MODEL, providers=CPU)
        assert hasattr(s, "_graft")
        agree(want, s.run(None, inputs))

    session()
    entry, graph, weights = stored()
    assert graph.endswith(".graph") and weights.endswith(".weights")

    def spoilt(path, change):
        with open(path, "rb") as f:
            before = f.read()
        after = change(before)
        os.unlink(path)  # sessions that are there have the file
        if after is not None:
            with open(path, "wb") as f:
                f.write(after)
        session()
        found = stored()
        assert len(found) == 3, found

    spoilt(entry, lambda b: b.replace(b"graft graph 2", b"graft graph 0"))
    spoilt(entry, lambda b: b[:len(b) // 2])
    spoilt(entry, lambda b: b"")
    spoilt(entry, lambda b: b.replace(b"replaced ", b"replaced x"))
    spoilt(graph, lambda b: b.replace(graft._cache.LAYOUT.encode(), b"python 0"))
    spoilt(graph, lambda b: b[:-1])
    spoilt(graph, lambda b: b"")
    spoilt(graph, lambda b: None)
    spoilt(weights, lambda b: b[:-1])
    spoilt(weights, lambda b: None)
    # a graph that the command stored, that nobody has parted, and that is no graph
    def unparted(text):
        for path in (graph, weights):
            os.unlink(path)
        with open(entry) as f:
            stored_at = next(line.split(" ", 2)[2].strip() for line in f if line.startswith("graph "))
        pathlib.Path(stored_at).write_bytes(text)
        session()
        assert len(stored()) == 3, stored()

    unparted(b"")
    unparted(b"no graph")
    # used now: what nobody used for long is removed by the command
    for path in stored():
        os.utime(path, (1, 1))
    session()
    assert all(time.time() - os.stat(p).st_mtime < 1000 for p in stored())


# --- what may change meanwhile ---


def case_changes():
    """A model that is overwritten, cut short or deleted under a session changes no answer; the next session has the new version."""
    graft.enable(strict=True)
    with copied() as path:
        reference = plain(path)
        inputs = feeds(reference)
        want = reference.run(None, inputs)
        s = InferenceSession(path, providers=CPU)
        with open(path, "r+b") as f:
            f.seek(100_000)
            f.write(bytes(4_000_000))
        agree(want, s.run(None, inputs))
        os.truncate(path, 10)
        agree(want, s.run(None, inputs))
        os.unlink(path)
        agree(want, s.run(None, inputs))
        perturbed(MODEL, path)
        new = plain(path).run(None, inputs)
        assert differ(want, new)
        t = InferenceSession(path, providers=CPU)
        assert hasattr(t, "_graft")
        agree(new, t.run(None, inputs))
        agree(want, s.run(None, inputs))
        shutil.rmtree(graft._cache.user_folder())  # nor does a cache that is emptied
        agree(new, t.run(None, inputs))


def case_changed_meanwhile():
    """A model that changes after it was planned, or while its session is made: the session of what is there, and one warning."""
    warnings = Warnings()
    with copied() as path, tempfile.TemporaryDirectory() as folder:
        other = os.path.join(folder, "other.onnx")
        perturbed(MODEL, other)
        inputs = feeds(plain(path))
        new = plain(other).run(None, inputs)
        with script(f'"$GRAFT_REAL" "$@"; r=$?; cp {other} {path}; exit $r'):
            graft.enable()
            s = InferenceSession(path, providers=CPU)
            assert not hasattr(s, "_graft") and "was changed while it was planned" in last().reason, last()
            agree(new, s.run(None, inputs))
        graft.enable()
        shutil.copy(MODEL, path)
        original = graft._sessions._process.create
        calls = []

        def create(self, *arguments, **keywords):
            calls.append(self._model_path)
            if len(calls) == 1:
                shutil.copy(other, path)
            return original(self, *arguments, **keywords)

        # the wrapper holds the function, so the function of a subclass stands for it
        class Slow(InferenceSession):
            pass

        Slow._create_inference_session = graft._sessions._create(create, ort.capi._pybind_state)
        s = Slow(path, providers=CPU)
        assert calls == [None, path], calls
        assert not hasattr(s, "_graft") and "was changed while its session was made" in last().reason, last()
        agree(new, s.run(None, inputs))
    assert len(warnings.texts) == 1, warnings.texts


# --- processes and threads ---


def case_programs():
    """Programs that make a session of one new model at once all get a patched one."""
    programs = [subprocess.Popen([sys.executable, os.path.join(HERE, "cases.py"), "one_program"], cwd=HERE) for _ in range(4)]
    assert [p.wait() for p in programs] == [0] * 4
    assert len(stored()) == 3, stored()


def case_one_program():
    graft.enable(strict=True)
    s = InferenceSession(MODEL, providers=CPU)
    agree(plain(MODEL).run(None, feeds(s)), s.run(None, feeds(s)))


def case_threads():
    """Threads that make sessions at once: all are patched, and the command runs once a model."""
    reference = plain(MODEL)
    inputs = feeds(reference)
    want = reference.run(None, inputs)
    data = pathlib.Path(MODEL).read_bytes()
    with script('echo "$2" >> "${0%/*}/calls"; exec "$GRAFT_REAL" "$@"') as folder:
        graft.enable(strict=True)
        options = ort.SessionOptions()
        barrier = threading.Barrier(8)

        def work(n):
            barrier.wait()
            for _ in range(3):
                s = InferenceSession(data if n % 2 else MODEL, options if n % 3 else None, CPU)
                assert hasattr(s, "_graft")
                agree(want, s.run(None, inputs))

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for f in [pool.submit(work, n) for n in range(8)]:
                f.result()
        calls = pathlib.Path(folder, "calls").read_text().splitlines()
        assert len(calls) == 2, calls
    assert graft.status().patched == 24


def in_child(queue):
    s = InferenceSession(MODEL, providers=CPU)
    queue.put((hasattr(s, "_graft") and graft.status().patched == len(graft.status().sessions) == 1, s.run(None, feeds(s))[0]))


def case_fork():
    """After enable a process forks, while a thread plans a model: its children make patched sessions."""
    context = multiprocessing.get_context("fork")
    with graft.enabled(strict=True):
        InferenceSession(EMBEDDER, providers=CPU)  # is not the children's to count
    with script('[ -e "${0%/*}/go" ] || { touch "${0%/*}/waits"; while [ ! -e "${0%/*}/go" ]; do sleep 0.05; done; }; exec "$GRAFT_REAL" "$@"') as folder:
        graft.enable(strict=True)
        thread = threading.Thread(target=InferenceSession, args=(MODEL,), kwargs={"providers": CPU})
        thread.start()
        while not os.path.exists(os.path.join(folder, "waits")):
            time.sleep(0.01)
        queue = context.Queue()
        children = [context.Process(target=in_child, args=(queue,)) for _ in range(3)]
        for c in children:
            c.start()
        pathlib.Path(folder, "go").touch()
        found = [queue.get(timeout=120) for _ in children]
        for c in children:
            c.join(60)
            assert c.exitcode == 0
        thread.join()
    reference = plain(MODEL)
    for patched, logits in found:
        assert patched
        agree(reference.run(None, feeds(reference))[:1], [logits])


APP = """
import os, sys
sys.path.insert(0, {here!r})
from common import *
graft.enable(strict=True)
inputs = feeds(ort.InferenceSession(MODEL, providers=CPU))
want = plain(MODEL).run(None, inputs)  # and whoever forks has made sessions
def app(environ, start_response):
    s = ort.InferenceSession(MODEL, providers=CPU)
    agree(want, s.run(None, inputs))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{{os.getpid()}} {{graft.status().patched}} {{graft.status().failed}}".encode()]
"""


def case_gunicorn():
    """A server that is forked after enable, as gunicorn does with --preload: its workers make patched sessions."""
    import http.client
    import socket

    class Connection(http.client.HTTPConnection):
        def connect(self):
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(address)

    def asked(_):
        c = Connection("localhost", timeout=120)
        c.request("GET", "/")
        r = c.getresponse()
        text = r.read().decode()
        assert r.status == 200, text
        return tuple(int(n) for n in text.split())

    with tempfile.TemporaryDirectory() as folder:
        address = os.path.join(folder, "socket")
        pathlib.Path(folder, "served.py").write_text(APP.format(here=HERE))
        server = subprocess.Popen([sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--timeout", "120", "--bind", f"unix:{address}", "served:app"],
                                  cwd=folder, stderr=subprocess.PIPE, text=True)
        try:
            while not os.path.exists(address) and server.poll() is None:
                time.sleep(0.05)
            workers = {}
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                while len(workers) < 2 or sum(workers.values()) < 8:  # the system chooses whom it asks
                    for pid, patched, failed in pool.map(asked, range(4)):
                        assert patched > 0 and failed == 0
                        workers[pid] = max(patched, workers.get(pid, 0))
            assert server.pid not in workers
        finally:
            server.terminate()
            said = server.communicate(timeout=60)[1]
        assert server.returncode == 0 and "Traceback" not in said, said[-3000:]


EXIT = """
import sys, threading, time
sys.path.insert(0, {here!r})
from common import *
if {enabled}: graft.enable(strict=True)
s = ort.InferenceSession(MODEL, providers=CPU)
inputs = feeds(s)
def forever():
    while True:
        s.run(None, inputs)
        ort.InferenceSession(MODEL, providers=CPU)
"""
DAEMONS = "for _ in range(3): threading.Thread(target=forever, daemon=True).start()\ntime.sleep(0.3)\n"
RUNNING = "for _ in range(3): threading.Thread(target=lambda: [s.run(None, inputs) for _ in range(50)]).start()\n"
ASYNC = "for _ in range(9): s.run_async(None, inputs, lambda *a: None, None)\nglobals().clear()\n"
PLANNING = """
threading.Thread(target=ort.InferenceSession, args=(MODEL,), daemon=True).start()
time.sleep(0.5)
"""


def case_exit():
    """An interpreter that ends while sessions run and are made ends as it does without graft."""
    def ends(code, seconds=300):
        try:
            p = subprocess.run([sys.executable, "-c", code], timeout=seconds, capture_output=True)
        except subprocess.TimeoutExpired:
            return "hangs", ""
        return p.returncode, p.stderr[-1000:]

    code, said = ends(EXIT.format(here=HERE, enabled=True) + RUNNING)
    assert code == 0, (code, said)
    # Threads that Python does not wait for are ended inside of ONNX Runtime's C++, which mostly aborts then, and at times waits in 1.22 for an
    # interpreter that has ended before its callbacks were called; nothing worse may happen.
    for rest, seconds, allowed in ((DAEMONS, 300, {0, -6}), (ASYNC, 30, {0, -6, "hangs"})):
        reference = {ends(EXIT.format(here=HERE, enabled=False) + rest, seconds)[0] for _ in range(2)}
        for _ in range(2):
            code, said = ends(EXIT.format(here=HERE, enabled=True) + rest, seconds)
            assert code in reference | allowed, (rest, code, said, reference)
    with script('while [ -e "$0" ]; do sleep 0.1; done'), environment(GRAFT_GRAPH_DEADLINE="86400"):
        code, said = ends(EXIT.split("if {enabled}")[0].format(here=HERE) + "graft.enable()\n" + PLANNING)
        assert code == 0, (code, said)


# --- the way back ---

X, Y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy")
FOUR, THREE = np.arange(4, dtype=np.float32), np.arange(3, dtype=np.float32)


def unary(nodes, **constants):
    """A model from x to y, with initializers."""
    g = helper.make_graph(nodes, "g", [X], [Y], initializer=[numpy_helper.from_array(np.array([v]), n) for n, v in constants.items()])
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def times(n):
    return unary([helper.make_node("Mul", ["x", "scale"], ["y"])], scale=np.float32(n))


PROGRAM = times(-1)
# What stands for PROGRAM. It fails where n is below 4.
FAILING = unary([helper.make_node("Neg", ["x"], ["r"]), helper.make_node("Gather", ["x", "last"], ["g"]), helper.make_node("Mul", ["g", "zero"], ["h"]),
                 helper.make_node("Add", ["r", "h"], ["y"])], last=3, zero=np.float32(0))


def failing(folder, *, strict=False, cls=InferenceSession, options=None, name=None):
    """The path of PROGRAM, and a session in which FAILING stands for it."""
    graft.enable(strict=strict)
    path = os.path.join(folder, "model.onnx")
    onnx.save(PROGRAM, path)
    s = graft._sessions.active()
    k = graft._cache.key(s.binary, [], graft._cache.Source(path, None))
    cache = graft._cache.user_folder()
    os.makedirs(cache, exist_ok=True)
    onnx.save(FAILING, os.path.join(cache, k + ".onnx"))
    numbers = " ".join(map(str, graft._cache.identity(os.stat(path))))
    with open(os.path.join(cache, k), "w") as f:
        f.write(f"graft graph 2\nreplaced 1\nblocks 1\ngraph {graft._cache._sha256(f'{cache}/{k}.onnx')} {cache}/{k}.onnx\nfile {numbers} - {path}\n")
    session = cls(name or path, options, CPU)
    assert session._graft.session.patched
    return path, session


def bind(session, x, y=None):
    b = session.io_binding()
    b.bind_cpu_input("x", x)
    if y is None:
        b.bind_output("y")
    else:
        b.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    return b


def value(array):
    return ort.OrtValue.ortvalue_from_numpy(array)


def run_async(session, x):
    done, found = threading.Event(), []
    session.run_async(None, {"x": x}, lambda *a: (found.append(a), done.set()), 1)
    assert done.wait(60) and found[0][2] == "", found
    return found[0][0][0]


def run_vector(session, x, y=None):
    C = ort.capi._pybind_state
    feeds, fetches = C.OrtValueVector(), C.OrtValueVector()
    feeds.push_back((x if isinstance(x, ort.OrtValue) else value(x))._ortvalue)
    if y is not None:
        fetches.push_back(y._ortvalue)
    session.run_with_ortvaluevector(ort.RunOptions(), ["x"], feeds, ["y"], fetches, [ort.OrtDevice.make("cpu", 0)._get_c_device()])
    return fetches[0].numpy()


def run_bound(session, x):
    b = bind(session, x)
    session.run_with_iobinding(b)
    assert (b.get_outputs()[0].numpy() == b.copy_outputs_to_cpu()[0]).all()
    return b.copy_outputs_to_cpu()[0]


def run_in_place(session, x):
    y = np.zeros_like(x)
    session.run_with_iobinding(bind(session, x, y))
    return y


def run_values_bound(session, x):
    x, y = value(x), ort.OrtValue.ortvalue_from_shape_and_type(x.shape, np.float32)
    b = session.io_binding()
    b.bind_ortvalue_input("x", x)
    b.bind_ortvalue_output("y", y)
    session.run_with_iobinding(b)
    return y.numpy()


def run_in_pieces(session, x):
    twice = np.repeat(x, 2)
    b = bind(session, twice[::2])
    twice[:] = 7  # ONNX Runtime has a copy
    session.run_with_iobinding(b)
    return b.copy_outputs_to_cpu()[0]


RUNS = {
    "run": lambda s, x: s.run(None, {"x": x})[0],
    "keywords": lambda s, x: s.run(output_names=["y"], input_feed={"x": x}, run_options=ort.RunOptions())[0],
    "values": lambda s, x: s.run_with_ort_values(None, {"x": value(x)})[0].numpy(),
    "async": run_async,
    "bound": run_bound,
    "bound to memory": run_in_place,
    "bound to values": run_values_bound,
    "bound in pieces": run_in_pieces,
    "vector": run_vector,
    "vector of memory": lambda s, x: run_vector(s, x, ort.OrtValue.ortvalue_from_shape_and_type(x.shape, np.float32)),
}


def case_way_back():
    """Where an operator fails, the run is repeated in the program's model, and later runs go there, however they are made."""
    with tempfile.TemporaryDirectory() as folder:
        for way, run in RUNS.items():
            warnings = Warnings()
            _, s = failing(folder)
            before = graft.status().reverted
            assert (run(s, FOUR) == -FOUR).all() and not s._graft.session.reverted, way
            old = bind(s, THREE)
            # The program's own errors are its own, in its model's words, and revert nothing.
            raises(Exception, "Unexpected input data type", s.run, None, {"x": np.arange(3)})
            raises(Exception, "Invalid", s.run, ["z"], {"x": FOUR})
            assert graft.status().reverted == before and not warnings.texts
            assert (run(s, THREE) == -THREE).all(), way
            assert len(warnings.texts) == 1 and "since an operator failed" in warnings.texts[0] and "Gather" in warnings.texts[0]
            assert graft.status().reverted == before + 1 and "Gather" in s._graft.session.reverted
            for again in RUNS.values():
                for x in (THREE, FOUR):
                    assert (again(s, x) == -x).all()
            s.run_with_iobinding(old)
            assert (old.copy_outputs_to_cpu()[0] == -THREE).all()
            assert len(warnings.texts) == 1
        # A binding that is used again, with other inputs and outputs.
        _, s = failing(folder)
        b = bind(s, FOUR)
        for x in (FOUR, THREE, FOUR):
            b.clear_binding_inputs()
            b.bind_cpu_input("x", x)
            b.clear_binding_outputs()
            b.bind_output("y")
            s.run_with_iobinding(b)
            assert (b.copy_outputs_to_cpu()[0] == -x).all()
        # Values that ONNX Runtime lets one session have.
        if hasattr(s, "create_ortvalue_from_shape_and_type"):
            for run in (lambda s, x: s.run_with_ort_values(None, {"x": x})[0].numpy(), lambda s, x: s.run(None, {"x": x})[0]):
                _, s = failing(folder)
                x = s.create_ortvalue_from_shape_and_type([3], np.float32, "cpu")
                x.update_inplace(THREE)
                for _ in range(2):
                    assert (run(s, x) == -THREE).all()


def case_no_way_back():
    """No answer is given where it might be another than the program's: its model has changed, its inputs may be overwritten, strict asks for errors."""
    with tempfile.TemporaryDirectory() as folder:
        for run in RUNS.values():
            if run is run_async:
                continue  # tells its callback
            path, s = failing(folder)
            onnx.save(times(2), path)
            raises(Exception, "Gather", run, s, THREE)
            assert (run(s, FOUR) == -FOUR).all()
            _, s = failing(folder, strict=True)
            raises(Exception, "Gather", run, s, THREE)
        # Outputs in the place of inputs: the failed run may have begun to write them.
        before = graft.status().reverted
        _, s = failing(folder)
        memory = np.arange(6, dtype=np.float32)
        for x, y in ((memory[:3], memory[:3]), (memory[:3], memory[2:5]), (memory[3:], memory[1:4])):
            raises(Exception, "Gather", s.run_with_iobinding, bind(s, x, y))
        x = value(THREE.copy())
        raises(Exception, "Gather", run_vector, s, x, x)
        b = s.io_binding()
        b.bind_ortvalue_input("x", x)
        b.bind_ortvalue_output("y", x)
        raises(Exception, "Gather", s.run_with_iobinding, b)
        assert graft.status().reverted == before
        s.run_with_iobinding(bind(s, memory[:3], memory[3:]))
        assert graft.status().reverted == before + 1


def case_way_back_as_made():
    """The session to which runs go back is that of the model, the options and the folder as they were when the program made its own."""
    class Closing(InferenceSession):
        def __del__(self):
            ended.append(self)

    ended = []
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as elsewhere:
        options = ort.SessionOptions()
        scale = value(np.array([5], np.float32))
        os.chdir(folder)
        _, s = failing(folder, cls=Closing, options=options, name="model.onnx")
        options.add_initializer("scale", scale)  # for a session to come
        os.chdir(elsewhere)
        onnx.save(times(3), "model.onnx")
        assert (s.run(None, {"x": THREE})[0] == -THREE).all()
        t = InferenceSession(os.path.join(folder, "model.onnx"), options, CPU)
        assert (t.run(None, {"x": THREE})[0] == 5 * THREE).all()
        assert s._graft.plain is not None and not ended
        os.chdir(here)


# --- the command line and its results ---


def case_results():
    """inspect and ab give what the command prints, as objects that a notebook shows."""
    i = graft.inspect(MODEL)
    assert i.replaced == 10 and len(i.blocks) == 31 and i.blocks[0].facts is not None
    assert i["model"] == i.model == MODEL and set(i) == set(i.to_dict())
    assert "31 blocks, 10 would be replaced" in repr(i)
    html = i._repr_html_()
    assert "FlashDecode" in html and "<table>" in html and "<script" not in html
    raises(AttributeError, "there is no nothing", getattr, i, "nothing")
    assert graft.inspect(pathlib.Path(MODEL).read_bytes(), plugins=["fused-gelu"]).replaced == 5
    raises(graft.Error, "cannot open the file", graft.inspect, MODEL + ".not")
    raises(graft.Error, "found int", graft.inspect, 3)
    raises(graft.Error, "found the option output", graft.inspect, MODEL, output="x")
    raises(graft.Error, "unknown flag", graft.inspect, MODEL, no_such=1)
    os.chdir(os.path.dirname(MODEL))
    shutil.copy("model.onnx", os.path.join(os.environ["XDG_CACHE_HOME"], "--help"))
    os.chdir(os.environ["XDG_CACHE_HOME"])
    assert graft.inspect("--help").replaced == 10
    assert not graft.Comparison({"cells": []}).equal, "nothing was compared"


def case_comparison():
    graft.enable(strict=True)
    s = InferenceSession(MODEL, providers=CPU)
    inputs = feeds(s)
    c = graft.ab(s, inputs, rounds=2, warmup=1)
    assert c.equal and c.parity.ok and c.b.replaced == 10 and c.speedup.median > 0
    assert [list(i.shape) for i in c.inputs] == [list(inputs[i.name].shape) for i in c.inputs]
    assert "answers equal" in repr(c) and "auto" in c._repr_html_()
    values = {k: ort.OrtValue.ortvalue_from_numpy(v) for k, v in inputs.items()}
    c = graft.ab(pathlib.Path(MODEL), values, rounds=1, warmup=1, b=["fused-gelu", "auto"])
    assert c.equal and len(c.cells) == 1 and [x.name for x in c.sides] == ["fused-gelu", "auto"]
    assert repr(c).count("answers equal") == 2 and c._repr_html_().count("<tr>") == 3
    c = graft.ab(MODEL, rounds=1, warmup=1, dim={"past_sequence_length": [2, 4]})
    assert len(c.cells) == 2 and "past_sequence_length" in repr(c), repr(c)
    raises(graft.Error, "no_such", graft.ab, MODEL, {"no_such": np.zeros(1, np.float32)}, rounds=1)
    raises(graft.Error, "input a: found elements of type object", graft.ab, MODEL, {"a": [None]})


def case_command():
    """python -m graft is the command line, and says in one line when there is none."""
    package = os.path.dirname(os.path.dirname(graft.__file__))

    def call(*arguments, **env):
        with environment(PYTHONPATH=package, **env):
            return subprocess.run([sys.executable, "-m", "graft", *arguments], capture_output=True, text=True)

    own = subprocess.run([BINARY, "version"], capture_output=True, text=True)
    p = call("version")
    assert (p.returncode, p.stdout) == (0, own.stdout), p
    p = call("inspect", MODEL)
    assert p.returncode == 0 and "31 blocks recognised" in p.stdout, p
    assert call("inspect", MODEL + ".not").returncode == 1
    p = call("version", GRAFT_BINARY="/nonexistent")
    assert p.returncode == 1 and p.stderr == "graft: /nonexistent: found no file, needed the command graft; set GRAFT_BINARY to the command graft, or unset it\n", p


# --- long ones ---


def case_many():
    """1,000 sessions: memory and descriptors stay."""
    graft.enable(strict=True)
    data = pathlib.Path(EMBEDDER).read_bytes()
    s = InferenceSession(EMBEDDER, providers=CPU)
    inputs = feeds(s)
    want = s.run(None, inputs)

    def now():
        with open("/proc/self/status") as f:
            rss = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
        return rss, len(os.listdir("/proc/self/fd")), threading.active_count()

    for n in range(1000):
        s = InferenceSession(data if n % 2 else EMBEDDER, providers=CPU)
        agree(want, s.run(None, inputs))
        if n == 200:
            before = now()
    after = now()
    assert after[0] < before[0] * 1.1 + 10_000 and after[1:] == before[1:], (before, after)
    assert graft.status().patched == 1001 and len(graft.status().sessions) == 1000


def case_replaced():
    """Files of equal size and time in the place of others: no stale weights, and no code that was not verified."""
    graft.enable()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        m = onnx.load(MODEL)

        def write(factor):
            for t in m.graph.initializer:
                a = onnx.numpy_helper.to_array(t)
                if a.dtype == np.float32 and a.size > 1000:
                    t.CopyFrom(onnx.numpy_helper.from_array(a * np.float32(factor), t.name))
            onnx.save(m, path)
            os.utime(path, (1700000000, 1700000000))

        for factor in (1, 1.5, 1.5):
            write(factor)
            reference = plain(path)
            inputs = feeds(reference)
            s = InferenceSession(path, providers=CPU)
            assert hasattr(s, "_graft"), graft.status()
            agree(reference.run(None, inputs), s.run(None, inputs))

    reference = plain(MODEL)
    inputs = feeds(reference)
    want = reference.run(None, inputs)
    agree(want, InferenceSession(MODEL, providers=CPU).run(None, inputs))
    for weights in (p for p in stored() if p.endswith(".weights")):
        assert os.stat(weights).st_mode & 0o777 == 0o400, weights
        was = os.stat(weights)
        os.chmod(weights, 0o600)
        with open(weights, "r+b") as f:
            f.write(os.urandom(4096))
        os.utime(weights, ns=(was.st_atime_ns, was.st_mtime_ns))
        os.chmod(weights, 0o400)
    s = InferenceSession(MODEL, providers=CPU)
    assert hasattr(s, "_graft")
    agree(want, s.run(None, inputs))

    with tempfile.TemporaryDirectory() as folder:
        plugins = shutil.copytree(os.environ["GRAFT_PLUGIN_PATH"], os.path.join(folder, "plugins"))
        with environment(GRAFT_PLUGIN_PATH=plugins, PYTHONPATH=os.path.dirname(os.path.dirname(graft.__file__))):
            call = [sys.executable, "-c", f"import graft, onnxruntime; graft.enable(); onnxruntime.InferenceSession({MODEL!r}, providers={CPU!r}); "
                                          "print(graft.status()); print(open('/proc/self/maps').read())"]
            assert "blocks replaced" in subprocess.run(call, capture_output=True, text=True, check=True).stdout
            for library in pathlib.Path(plugins).rglob("*.so"):
                was = os.stat(library)
                with open(library, "r+b") as f:
                    f.write(bytes(was.st_size))  # no library at all
                os.utime(library, ns=(was.st_atime_ns, was.st_mtime_ns))
            out = subprocess.run(call, capture_output=True, text=True, check=True).stdout
            assert "blocks replaced" not in out and "memfd:lib" not in out and f"{plugins}/" not in out.partition(" r-xp ")[2], out


CASES = {name.removeprefix("case_"): f for name, f in list(globals().items()) if name.startswith("case_")}

if __name__ == "__main__":
    assert VERSION >= (1, 22)
    CASES[sys.argv[1]]()
