// The C table that the kit generates, called as a host calls it.
#include <gtest/gtest.h>

#include <cmath>

#include "host.h"

namespace graft::test {
namespace {

const graft_plugin* Table() {
  static const graft_plugin* table = Load(KIT_CHECK);
  return table;
}

TEST(Table, SaysWhatItIs) {
  const graft_plugin* table = Table();
  EXPECT_EQ(table->size, sizeof(graft_plugin));
  EXPECT_EQ(table->abi_major, GRAFT_ABI_MAJOR);
  EXPECT_EQ(table->abi_minor, GRAFT_ABI_MINOR);
  const graft_plugin_info* info = table->describe();
  EXPECT_STREQ(info->name, "kit-check");
  EXPECT_STREQ(info->version, "0.1.0");
  EXPECT_STREQ(info->summary, "uses every part of the kit once, for tests");
  EXPECT_EQ(info->device_type, GRAFT_DEVICE_CPU);
  ASSERT_EQ(info->num_operators, 6u);

  const graft_operator* everything = info->operators[0];
  EXPECT_STREQ(everything->name, "Everything");
  EXPECT_EQ(everything->since_version, 1);
  ASSERT_EQ(everything->num_inputs, 4u);
  EXPECT_STREQ(everything->inputs[1]->name, "bias");
  EXPECT_EQ(everything->inputs[1]->flags, uint32_t{GRAFT_PARAMETER_OPTIONAL});
  EXPECT_EQ(everything->inputs[0]->type_variable, everything->outputs[0]->type_variable);
  EXPECT_EQ(everything->inputs[3]->type_variable, -1);
  ASSERT_EQ(everything->inputs[3]->num_types, 2u);
  EXPECT_TRUE(everything->inputs[3]->types[1] == kInt64);
  ASSERT_EQ(everything->num_attributes, 5u);
  EXPECT_EQ(everything->attributes[2]->kind, GRAFT_ATTRIBUTE_STRING);
  EXPECT_EQ(info->operators[1]->inputs[0]->min_count, 2u);
  EXPECT_EQ(info->operators[3]->attributes[0]->flags, uint32_t{GRAFT_ATTRIBUTE_REQUIRED});
  EXPECT_EQ(info, table->describe());

  ASSERT_NE(table->next, nullptr);
  EXPECT_STREQ(table->next->name, GRAFT_EXTENSION_ORT_OPS);
  EXPECT_EQ(table->next->size, sizeof(graft_ort_ops));
}

TEST(Table, Probes) {
  Message message;
  graft_probe_result result{sizeof result, nullptr, -1, 0};
  graft_device device{GRAFT_DEVICE_CPU, 0};
  EXPECT_EQ(Table()->probe(&device, &result, &message.c), GRAFT_OK);
  EXPECT_EQ(result.score, 1);
  EXPECT_STREQ(message.text, "made for tests");
  device.type = GRAFT_DEVICE_CUDA;
  EXPECT_EQ(Table()->probe(&device, &result, &message.c), GRAFT_OK);
  EXPECT_EQ(result.score, 0);
  EXPECT_STREQ(message.text, "this library runs on cpu only");
}

TEST(Table, InfersWithUnknownSizes) {
  Kernel join(Table(), "Join");
  ASSERT_EQ(join.Create(), GRAFT_OK);
  Buffer a(kFloat32, {0, 0}), b(kFloat32, {0, 0}), y(kFloat32, {0, 0});
  int64_t shape_a[] = {-2, 3}, shape_b[] = {-2, -3}, shape_y[GRAFT_MAX_RANK];
  a.tensor()->shape = shape_a;
  b.tensor()->shape = shape_b;
  y.tensor()->shape = shape_y;
  ASSERT_EQ(join.Infer({a.tensor(), b.tensor()}, {y.tensor()}), GRAFT_OK) << join.message.text;
  EXPECT_EQ(y.tensor()->ndim, 2);
  EXPECT_EQ(shape_y[0], -2);  // the same symbol
  EXPECT_EQ(shape_y[1], -1);
  shape_b[1] = 4;
  ASSERT_EQ(join.Infer({a.tensor(), b.tensor()}, {y.tensor()}), GRAFT_OK);
  EXPECT_EQ(shape_y[1], 7);
  shape_a[0] = 5;
  shape_b[0] = 6;
  EXPECT_EQ(join.Infer({a.tensor(), b.tensor()}, {y.tensor()}), GRAFT_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(join.message.text, "Join: rows differ");
}

TEST(Table, RunsWithAllThatAKernelCanHave) {
  for (const int32_t threads : {1, 3}) {
    Kernel kernel(Table(), "Everything");
    const std::vector<int64_t> ints{1, 2};
    ASSERT_EQ(kernel.Create(Attributes()
                                .Int("int", 3)
                                .Float("float", 0.5)
                                .String("string", "ab")
                                .Ints("ints", ints)),
              GRAFT_OK);
    Buffer x(kFloat32, {3, 2}, 1), bias(kFloat32, {2}, 3), lengths(kInt64, {1}),
        y(kFloat32, {3, 2}, 5), count(kInt64, {1}), doubled(kFloat32, {3, 2});
    x.Set<float>({1, 2, 3, 4, 5, 6});
    bias.Set<float>({10, 20});
    lengths.Set<int64_t>({2});
    ASSERT_EQ(kernel.Run({x.tensor(), bias.tensor(), nullptr, lengths.tensor()},
                         {y.tensor(), count.tensor(), doubled.tensor()}, threads),
              GRAFT_OK)
        << kernel.message.text;
    EXPECT_EQ(y.Get<float>(), (std::vector<float>{19.5, 30.5, 21.5, 32.5, 0, 0}));
    EXPECT_EQ(doubled.Get<float>(), (std::vector<float>{39, 61, 43, 65, 0, 0}));
    EXPECT_EQ(count.Get<int64_t>()[0], 6);
    EXPECT_TRUE(x.intact() && y.intact() && doubled.intact() && count.intact());
    EXPECT_EQ(kernel.log, "ran");
    // Absent trailing tensors.
    ASSERT_EQ(kernel.Run({x.tensor()}, {y.tensor()}, threads), GRAFT_OK);
    EXPECT_EQ(y.Get<float>()[5], 14.5f);
  }
}

TEST(Table, GivesConstantsToKernels) {
  Kernel kernel(Table(), "Everything");
  Buffer x(kFloat32, {1}), bias(kFloat32, {1}), y(kFloat32, {1});
  bias.Set<float>({4});
  ASSERT_EQ(kernel.Create({}, {nullptr, bias.tensor()}), GRAFT_OK);
  bias.Set<float>({5});  // the kernel has read 4 already
  x.Set<float>({1});
  ASSERT_EQ(kernel.Run({x.tensor(), bias.tensor()}, {y.tensor()}), GRAFT_OK);
  EXPECT_EQ(y.Get<float>()[0], 5.0f);
}

TEST(Table, ReadsThroughStrides) {
  Kernel join(Table(), "Join");
  ASSERT_EQ(join.Create(), GRAFT_OK);
  Buffer a(kFloat32, {2, 3}), b(kFloat32, {2, 1}), y(kFloat32, {2, 4});
  a.Set<float>({1, 2, 3, 4, 5, 6});
  a.SetStrides({1, 2});  // a transposed view
  b.Set<float>({7, 8});
  ASSERT_EQ(join.Run({a.tensor(), b.tensor()}, {y.tensor()}), GRAFT_OK) << join.message.text;
  EXPECT_EQ(y.Get<float>(), (std::vector<float>{1, 3, 5, 7, 2, 4, 6, 8}));
}

TEST(Table, RefusesTensorsThatDoNotFit) {
  Kernel kernel(Table(), "Everything");
  ASSERT_EQ(kernel.Create(), GRAFT_OK);
  Buffer x(kFloat32, {1}), half(kFloat16, {1}), ints(kInt64, {1}), y(kFloat32, {1});
  const auto refused = [&](std::vector<const graft_tensor*> inputs, const char* text) {
    EXPECT_EQ(kernel.Run(inputs, {y.tensor()}), GRAFT_ERROR_INVALID_ARGUMENT) << text;
    EXPECT_STREQ(kernel.message.text, text);
  };
  const graft_tensor* x_ = x.tensor();
  refused({ints.tensor()}, "input 0 (x) holds int64, which the operator does not take");
  refused({x_, half.tensor()}, "input 1 (bias) holds float16, its fellows hold float");
  refused({x_, nullptr, nullptr, x_},
          "input 3 (lengths) holds float, which the operator does not take");
  refused({x_, nullptr, nullptr, nullptr, x_}, "5 inputs given, at most 4 stated");
  Kernel total(Table(), "Total");
  ASSERT_EQ(total.Create(), GRAFT_OK);
  EXPECT_EQ(total.Run({x_}, {y.tensor()}), GRAFT_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(total.message.text, "1 inputs given, at least 2 needed");
  Kernel join(Table(), "Join");
  ASSERT_EQ(join.Create(), GRAFT_OK);
  EXPECT_EQ(join.Run({x_}, {y.tensor()}), GRAFT_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(join.message.text, "input 1 (b) is absent and not optional");
  EXPECT_EQ(join.Run({x.tensor(), x.tensor()}, {nullptr}), GRAFT_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(join.message.text, "output 0 (y) is absent and not optional");
}

TEST(Table, StopsExceptionsAtTheEdge) {
  Buffer x(kFloat32, {1}), y(kFloat32, {1});
  int64_t shape[GRAFT_MAX_RANK];
  const auto attempt = [&](const char* where, int32_t code, const char* text) {
    Kernel kernel(Table(), "Fails");
    int32_t got = kernel.Create(Attributes().String("where", where));
    if (got == GRAFT_OK) {
      Buffer inferred(kFloat32, {1});
      inferred.tensor()->shape = shape;
      got = kernel.Infer({x.tensor()}, {inferred.tensor()});
    }
    if (got == GRAFT_OK) got = kernel.Run({x.tensor()}, {y.tensor()}, 4);
    EXPECT_EQ(got, code) << where;
    EXPECT_STREQ(kernel.message.text, text) << where;
  };
  attempt("create", GRAFT_ERROR_INTERNAL, "create failed");
  attempt("infer", GRAFT_ERROR_INTERNAL, "infer failed");
  attempt("run", GRAFT_ERROR_INTERNAL, "unknown C++ exception");
  attempt("task", GRAFT_ERROR_INTERNAL, "task failed");
  attempt("", GRAFT_ERROR_UNSUPPORTED, "nothing else");
  Kernel kernel(Table(), "Fails");
  EXPECT_EQ(kernel.Create(), GRAFT_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(kernel.message.text, "attribute where is required and was not given");
  EXPECT_EQ(kernel.Create(Attributes().Int("where", 1)), GRAFT_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(kernel.message.text, "attribute where has kind 1, needed is 3");
  Kernel nothing(Table(), "NoSuchOperator");
  EXPECT_EQ(nothing.Create(), GRAFT_ERROR_INVALID_ARGUMENT);
}

TEST(Table, CutsMessagesToTheirBuffer) {
  Kernel kernel(Table(), "Fails");
  kernel.message.c.capacity = 7;
  kernel.message.text[7] = 'x';
  EXPECT_EQ(kernel.Create(Attributes().String("where", "create")), GRAFT_ERROR_INTERNAL);
  EXPECT_STREQ(kernel.message.text, "create");
  EXPECT_EQ(kernel.message.text[7], 'x');
  kernel.message.c.capacity = 0;
  EXPECT_EQ(kernel.Create(), GRAFT_ERROR_INVALID_ARGUMENT);
  kernel.message.c.text = nullptr;
  EXPECT_EQ(kernel.Create(), GRAFT_ERROR_INVALID_ARGUMENT);
}

TEST(Table, Folds) {
  Buffer w(kFloat64, {3});
  w.Set<double>({2, 4, 6});
  std::map<std::string, Folded> results;
  Message message;
  ASSERT_EQ(Fold(Table(), "Halved", {{"w", w.tensor()}}, &results, &message), GRAFT_OK)
      << message.text;
  EXPECT_EQ(results["half"].values, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(results["half"].shape, (std::vector<int64_t>{3}));
  EXPECT_EQ(Fold(Table(), "Halved", {{"w", w.tensor()}}, nullptr, &message),
            GRAFT_ERROR_OUT_OF_MEMORY);
  EXPECT_STREQ(message.text, "fold: the host did not take half");
  EXPECT_EQ(Fold(Table(), "Halved", {}, &results, &message), GRAFT_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(message.text, "fold: no constant w was captured");
  w.Set<double>({2, -4, 6});
  EXPECT_EQ(Fold(Table(), "Halved", {{"w", w.tensor()}}, &results, &message), GRAFT_REFUSED);
  EXPECT_STREQ(message.text, "w holds -4, which is negative");
}

}  // namespace
}  // namespace graft::test
