// The kit's operators in real sessions of ONNX Runtime, made through its C API.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <onnxruntime_c_api.h>

#include <cmath>
#include <thread>
#include <tuple>

#if defined(GRAFT_SANITIZED)
#include <sanitizer/lsan_interface.h>
#endif

#include "host.h"
#include "onnx_model.h"

namespace graft::test {
namespace {

using Register = OrtStatus* (*)(OrtSessionOptions*, const OrtApiBase*);

const OrtApiBase* Base() {
  static const OrtApiBase* base = [] {
    void* library = dlopen(ORT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    return reinterpret_cast<const OrtApiBase* (*)()>(dlsym(library, "OrtGetApiBase"))();
  }();
  return base;
}

const OrtApi* Api() { return Base()->GetApi(18); }

void Ok(OrtStatus* status) {
  if (status == nullptr) return;
  const std::string text = Api()->GetErrorMessage(status);
  Api()->ReleaseStatus(status);
  throw std::runtime_error(text);
}

// The environment, after one session without plugins: the runtime's first session never frees 14
// bytes, which are not the plugins'.
OrtEnv* Env() {
  static OrtEnv* env = [] {
#if defined(GRAFT_SANITIZED)
    const __lsan::ScopedDisabler disabler;
#endif
    OrtEnv* made = nullptr;
    Ok(Api()->CreateEnv(ORT_LOGGING_LEVEL_FATAL, "test", &made));
    const std::string model =
        Model().Node("Relu", {"x"}, {"y"}, {}, "").Input("x", {1}).Output("y").Bytes();
    OrtSessionOptions* options = nullptr;
    Ok(Api()->CreateSessionOptions(&options));
    OrtSession* session = nullptr;
    Ok(Api()->CreateSessionFromArray(made, model.data(), model.size(), options, &session));
    Api()->ReleaseSession(session);
    Api()->ReleaseSessionOptions(options);
    return made;
  }();
  return env;
}

// Session options with plugins registered as another language would.
class Options {
 public:
  explicit Options(const std::vector<std::string>& libraries) {
    Ok(Api()->CreateSessionOptions(&options_));
    for (const std::string& path : libraries) Add(path);
  }
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;
  ~Options() { Api()->ReleaseSessionOptions(options_); }
  void Add(const std::string& path) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    Ok(reinterpret_cast<Register>(dlsym(library, "RegisterCustomOps"))(options_, Base()));
  }
  OrtSessionOptions* get() const { return options_; }

 private:
  OrtSessionOptions* options_ = nullptr;
};

struct Value {
  std::vector<int64_t> shape;
  std::vector<float> data;
};

class Session {
 public:
  Session(const Options& options, const std::string& model) {
    Ok(Api()->CreateSessionFromArray(Env(), model.data(), model.size(), options.get(), &session_));
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { Api()->ReleaseSession(session_); }

  std::vector<Value> Run(const std::vector<std::pair<const char*, Value>>& inputs,
                         const std::vector<const char*>& outputs) const {
    OrtMemoryInfo* memory = nullptr;
    Ok(Api()->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
    std::vector<const char*> names;
    std::vector<OrtValue*> values;
    for (const auto& [name, value] : inputs) {
      names.push_back(name);
      values.push_back(nullptr);
      Ok(Api()->CreateTensorWithDataAsOrtValue(
          memory, const_cast<float*>(value.data.data()), value.data.size() * sizeof(float),
          value.shape.data(), value.shape.size(), ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
          &values.back()));
    }
    Api()->ReleaseMemoryInfo(memory);
    std::vector<OrtValue*> got(outputs.size(), nullptr);
    OrtStatus* status = Api()->Run(session_, nullptr, names.data(), values.data(), values.size(),
                                   outputs.data(), outputs.size(), got.data());
    for (OrtValue* value : values) Api()->ReleaseValue(value);
    Ok(status);
    std::vector<Value> results;
    for (OrtValue* value : got) {
      OrtTensorTypeAndShapeInfo* info = nullptr;
      Ok(Api()->GetTensorTypeAndShape(value, &info));
      size_t rank = 0, count = 0;
      ONNXTensorElementDataType type;
      Ok(Api()->GetDimensionsCount(info, &rank));
      Ok(Api()->GetTensorShapeElementCount(info, &count));
      Ok(Api()->GetTensorElementType(info, &type));
      Value result;
      result.shape.resize(rank);
      Ok(Api()->GetDimensions(info, result.shape.data(), rank));
      Api()->ReleaseTensorTypeAndShapeInfo(info);
      void* data = nullptr;
      Ok(Api()->GetTensorMutableData(value, &data));
      if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) {
        result.data.assign(static_cast<float*>(data), static_cast<float*>(data) + count);
      } else {
        for (size_t i = 0; i < count; ++i) {
          result.data.push_back(static_cast<float>(static_cast<int64_t*>(data)[i]));
        }
      }
      results.push_back(result);
      Api()->ReleaseValue(value);
    }
    return results;
  }

 private:
  OrtSession* session_ = nullptr;
};

// What a body throws, as text.
template <typename Body>
std::string Thrown(Body&& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

const Value kX{{2, 3}, {1, 2, 3, 4, 5, 6}};

TEST(Ort, PluginsShareOneDomainInAnyOrder) {
  const std::string model = Model()
                                .Node("FusedGelu", {"x"}, {"g"})
                                .Node("Join", {"g", "x"}, {"y"})
                                .Input("x", {-1, 3})
                                .Output("y")
                                .Bytes();
  for (const std::vector<std::string>& libraries :
       {std::vector<std::string>{KIT_CHECK, FUSED_GELU},
        {FUSED_GELU, KIT_CHECK, FUSED_GELU, KIT_CHECK}}) {
    const Options options(libraries);
    for (int i = 0; i < 2; ++i) {  // several sessions use the same options
      const Session session(options, model);
      const Value y = session.Run({{"x", kX}}, {"y"})[0];
      EXPECT_EQ(y.shape, (std::vector<int64_t>{2, 6}));
      EXPECT_EQ(y.data[3], 1);
      EXPECT_NEAR(y.data[0], 0.5 * (1 + std::erf(std::sqrt(0.5))), 1e-6);
    }
  }
}

// Each library names the lengths that it does not know, and the runtime takes equal names for equal
// lengths: of two libraries' none may be equal, or one's output is laid where another's was.
TEST(Ort, UnknownLengthsOfTwoLibrariesStayApart) {
  Model model;
  model.Input("x", {-1}).Input("z", {-1}).Output("y").Constant("one", {1});
  std::string last = "one";
  for (int i = 0; i < 8; ++i) {  // the libraries need not have named as many lengths before
    const auto at = [i](const char* name) { return name + std::to_string(i); };
    for (const auto& [from, op, to] :
         {std::tuple{"x", "FusedGelu", "short"}, std::tuple{"z", "Total", "long"}}) {
      const std::string made = at(to);
      std::vector<std::string> operands(op[0] == 'T' ? 2 : 1, made + "f");
      model.Node("Mul", {from, last}, {made + "m"}, {}, "")
          .Node("NonZero", {made + "m"}, {made + "n"}, {}, "")
          .Node("Cast", {made + "n"}, {made + "f"}, {{"to", int64_t{1}}}, "")
          .Node(op, operands, {made})
          .Node("ReduceMax", {made}, {made + "r"}, {{"keepdims", int64_t{0}}}, "");
      last = made + "r";
    }
  }
  model.Node("Identity", {last}, {"y"}, {}, "");
  const std::string bytes = model.Bytes();
  for (const std::vector<std::string>& libraries :
       {std::vector<std::string>{KIT_CHECK, FUSED_GELU}, {FUSED_GELU, KIT_CHECK}}) {
    const Options options(libraries);
    const Session session(options, bytes);
    const Value y = session.Run({{"x", {{3}, {1, 1, 1}}}, {"z", {{5}, {1, 1, 1, 1, 1}}}}, {"y"})[0];
    EXPECT_EQ(y.data[0], 8);  // twice the last place of five
  }
}

TEST(Ort, ClonesOfOptionsStayApart) {
  const std::string model =
      Model().Node("FusedGelu", {"x"}, {"y"}).Input("x", {2, 3}).Output("y").Bytes();
  const Options options({KIT_CHECK});
  for (int i = 0; i < 3; ++i) {  // each clone is given the plugin that the original lacks
    OrtSessionOptions* clone = nullptr;
    Ok(Api()->CloneSessionOptions(options.get(), &clone));
    void* library = dlopen(FUSED_GELU, RTLD_NOW | RTLD_LOCAL);
    Ok(reinterpret_cast<Register>(dlsym(library, "RegisterCustomOps"))(clone, Base()));
    OrtSession* session = nullptr;
    Ok(Api()->CreateSessionFromArray(Env(), model.data(), model.size(), clone, &session));
    Api()->ReleaseSession(session);
    Api()->ReleaseSessionOptions(clone);
  }
}

// Both variants of a plugin in one domain: the schemas join, and a session without the CUDA
// provider runs the kernels of the CPU, whichever library came first. (The one for CUDA would run
// as well as the other here, but for its name: that it does not is seen where it is alone.)
TEST(Ort, VariantsShareOneDomain) {
  const std::string model = Model()
                                .Node("Everything", {"x"}, {"y"})
                                .Node("Join", {"y", "x"}, {"z"})
                                .Input("x", {-1, 3})
                                .Output("z")
                                .Bytes();
  for (const std::vector<std::string>& libraries :
       {std::vector<std::string>{KIT_CHECK, KIT_CHECK_CUDA},
        {KIT_CHECK_CUDA, KIT_CHECK},
        {KIT_CHECK_CUDA, FUSED_GELU, KIT_CHECK, KIT_CHECK_CUDA}}) {
    const Options options(libraries);
    for (int i = 0; i < 2; ++i) {
      const Session session(options, model);
      const Value z = session.Run({{"x", kX}}, {"z"})[0];
      EXPECT_EQ(z.shape, (std::vector<int64_t>{2, 6}));
      EXPECT_EQ(z.data, (std::vector<float>{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}));
    }
  }
  const Options alone({KIT_CHECK_CUDA});
  const std::string refusal = Thrown([&] { const Session session(alone, model); });
  EXPECT_NE(refusal.find("Could not find an implementation for Everything(1)"), std::string::npos)
      << refusal;
}

TEST(Ort, RefusesAConfigEntryThatIsNoAddress) {
  const Options options({});
  Ok(Api()->AddSessionConfigEntry(options.get(), GRAFT_ORT_DOMAIN_KEY, "nonsense"));
  void* library = dlopen(FUSED_GELU, RTLD_NOW | RTLD_LOCAL);
  const auto registers = reinterpret_cast<Register>(dlsym(library, "RegisterCustomOps"));
  EXPECT_EQ(Thrown([&] { Ok(registers(options.get(), Base())); }),
            "graft fused-gelu: session config entry graft.domain.v1 is nonsense, needed is the "
            "address that a "
            "plugin wrote; remove the entry");
}

// A model gets no operator that only engines place, unless the program says that the model is its
// own.
TEST(Ort, EnginesOperatorsAreNotForModels) {
  const std::string model =
      Model().Node("Step", {"x"}, {"y", "shared"}).Input("x", {2}).Output("y").Bytes();
  const Options theirs({KIT_CHECK});
  try {
    const Session session(theirs, model);
    FAIL() << "a session was made";
  } catch (const std::runtime_error& e) {
    EXPECT_NE(std::string(e.what()).find("Step"), std::string::npos) << e.what();
  }
  Options own({});
  Ok(Api()->AddSessionConfigEntry(own.get(), "graft.engine_operators", "1"));
  own.Add(KIT_CHECK);
  const auto got = Session(own, model).Run({{"x", {{2}, {1, 2}}}}, {"y"});
  EXPECT_EQ(got[0].data, (std::vector<float>{2, 3}));
}

TEST(Ort, HandsOutItsOperators) {
  const graft_plugin* table = Load(KIT_CHECK);
  const auto* extension = reinterpret_cast<const graft_ort_ops*>(table->next);
  const void* const* ops = nullptr;
  uint64_t count = 0;
  Message message;
  ASSERT_EQ(extension->get(Base(), &ops, &count, &message.c), GRAFT_OK) << message.text;
  ASSERT_EQ(count, 8u);  // two overloads of Everything and of Total, one of each other
  OrtCustomOpDomain* domain = nullptr;
  Ok(Api()->CreateCustomOpDomain(GRAFT_ONNX_DOMAIN, &domain));
  for (uint64_t i = 0; i < count; ++i) {
    const auto* op = static_cast<const OrtCustomOp*>(ops[i]);
    EXPECT_EQ(op->version, 18u);
    Ok(Api()->CustomOpDomain_Add(domain, op));
  }
  {
    const Options options({});
    Ok(Api()->AddCustomOpDomain(options.get(), domain));
    const Session session(
        options, Model().Node("Join", {"x", "x"}, {"y"}).Input("x", {2, 3}).Output("y").Bytes());
    EXPECT_EQ(session.Run({{"x", kX}}, {"y"})[0].shape, (std::vector<int64_t>{2, 6}));
  }
  Api()->ReleaseCustomOpDomain(domain);
  const void* const* again = nullptr;
  ASSERT_EQ(extension->get(Base(), &again, &count, &message.c), GRAFT_OK);
  EXPECT_EQ(again, ops);
}

TEST(Ort, AbsentInputsOutputsAttributesAndConstants) {
  const Options options({KIT_CHECK});
  const Session session(options, Model()
                                     .Node("Everything", {"x", "", "", ""}, {"y", "", "d"},
                                           {{"int", int64_t{3}},
                                            {"float", 0.5f},
                                            {"string", "ab"},
                                            {"ints", std::vector<int64_t>{1, 2}},
                                            {"floats", std::vector<float>{0.25f, 0.25f}}})
                                     .Node("Everything", {"x", "c"}, {"z", "n"})
                                     .Constant("c", {100})
                                     .Input("x", {-1, -1})
                                     .Output("y")
                                     .Output("d")
                                     .Output("z")
                                     .Output("n", true)
                                     .Bytes());
  const std::vector<Value> got = session.Run({{"x", kX}}, {"y", "d", "z", "n"});
  EXPECT_EQ(got[0].data[5], 6 + 3 + 0.5 + 2 + 3 + 0.5);
  EXPECT_EQ(got[1].data[5], 30);
  EXPECT_EQ(got[2].data[0], 101);
  EXPECT_EQ(got[3].data, (std::vector<float>{6}));
  // Sizes change from run to run.
  EXPECT_EQ(session.Run({{"x", {{4, 1}, {1, 2, 3, 4}}}}, {"n"})[0].data, (std::vector<float>{4}));
  EXPECT_EQ(session.Run({{"x", {{0, 3}, {}}}}, {"y"})[0].shape, (std::vector<int64_t>{0, 3}));
}

// An operator's output has the memory of its input where a node before it made that, no other
// node reads it, and the output is not the graph's.
TEST(Ort, AnOutputTakesItsInputsPlaceWhereNobodyElseReadsIt) {
  const Options options({KIT_CHECK});
  const auto run = [&](Model model) {
    const Session session(options, model.Bytes());
    return session.Run({{"x", kX}}, {"y", "shared"});
  };
  const std::vector<float> plus_one{2, 3, 4, 5, 6, 7};
  const auto begin = [] { return Model().Input("x", {2, 3}).Output("y").Output("shared", true); };

  // Between two nodes.
  std::vector<Value> got = run(begin()
                                   .Node("Abs", {"x"}, {"a"}, {}, "")
                                   .Node("Increment", {"a"}, {"b", "shared"})
                                   .Node("Abs", {"b"}, {"y"}, {}, ""));
  EXPECT_EQ(got[0].data, plus_one);
  EXPECT_EQ(got[1].data[0], 1);

  // Of the graph's input.
  got = run(begin().Node("Increment", {"x"}, {"b", "shared"}).Node("Abs", {"b"}, {"y"}, {}, ""));
  EXPECT_EQ(got[0].data, plus_one);
  EXPECT_EQ(got[1].data[0], 0);

  // As the graph's output.
  got = run(begin().Node("Abs", {"x"}, {"a"}, {}, "").Node("Increment", {"a"}, {"y", "shared"}));
  EXPECT_EQ(got[0].data, plus_one);
  EXPECT_EQ(got[1].data[0], 0);

  // Of what is read again.
  got = run(begin()
                .Node("Abs", {"x"}, {"a"}, {}, "")
                .Node("Increment", {"a"}, {"b", "shared"})
                .Node("Total", {"a", "b"}, {"y"}));
  EXPECT_EQ(got[0].data, (std::vector<float>{3, 5, 7, 9, 11, 13}));
  EXPECT_EQ(got[1].data[0], 0);

  // Of what is given out.
  got = run(begin()
                .Node("Abs", {"x"}, {"a"}, {}, "")
                .Node("Increment", {"a"}, {"b", "shared"})
                .Node("Abs", {"b"}, {"y"}, {}, "")
                .Output("a"));
  EXPECT_EQ(got[0].data, plus_one);
  EXPECT_EQ(got[1].data[0], 0);
}

TEST(Ort, VariadicInputsBeyondTheStack) {
  const Options options({KIT_CHECK});
  const std::vector<std::string> terms(40, "x");
  const Session session(options,
                        Model().Node("Total", terms, {"y"}).Input("x", {2, 3}).Output("y").Bytes());
  EXPECT_EQ(session.Run({{"x", kX}}, {"y"})[0].data,
            (std::vector<float>{40, 80, 120, 160, 200, 240}));
}

TEST(Ort, RunsAtOnce) {
  const Options options({KIT_CHECK});
  const Session session(
      options, Model().Node("Everything", {"x"}, {"y"}).Input("x", {-1, -1}).Output("y").Bytes());
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 1; i < 60; ++i) {
        const Value x{{i, t + 1},
                      std::vector<float>(static_cast<size_t>(i * (t + 1)), static_cast<float>(t))};
        wrong[static_cast<size_t>(t)] += session.Run({{"x", x}}, {"y"})[0].data != x.data;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(Ort, FailuresAreMessages) {
  const Options options({KIT_CHECK});
  const auto attempt = [&](std::vector<Attribute> attributes) {
    return Thrown([&] {
      const Session session(options, Model()
                                         .Node("Fails", {"x"}, {"y"}, std::move(attributes))
                                         .Input("x", {-1, 3})
                                         .Output("y")
                                         .Bytes());
      session.Run({{"x", kX}}, {"y"});
    });
  };
  const auto expect = [](const std::string& got, const std::string& text) {
    EXPECT_NE(got.find(text), std::string::npos) << got;
  };
  expect(attempt({{"where", "create"}}), "graft Fails: create failed");
  expect(attempt({{"where", "infer"}}),
         "graft Fails: infer failed");  // in the run: loading stays silent
  expect(attempt({{"where", "run"}}), "graft Fails: unknown C++ exception");
  expect(attempt({{"where", "task"}}), "graft Fails: task failed");
  expect(attempt({}), "graft Fails: attribute where is required and was not given");
}

}  // namespace
}  // namespace graft::test
