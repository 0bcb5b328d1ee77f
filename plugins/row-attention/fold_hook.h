// The Fold hook of the plugins that attend to something else than keys and values:
//
//   GRAFT_PLUGIN_WITH(graft::fold::Hooks, Operator, ...);
//
// Attributes are the operator's: num_heads, kv_num_heads (0: num_heads), head_size, value_size (0:
// head_size), storage (float32). d is the width of the layer's input, H and G are query and KV
// heads.
//
// KeyAttention (H = G). Constants: key_weight [d, H * head_size], value_weight [d, H * value_size],
//   and key_bias [H * head_size], only where the cached keys carry it, and value_bias [H *
//   value_size], either of which may be left out. Emits value_weight [H, ceil(value_size / 16), H *
//   head_size, 16] and value_bias [H * value_size].
// ELAttention, InputAttention. Constants: key_weight [d, G * head_size], value_weight [d, G *
//   value_size], and base_key_weight [d, w] where the stored rows are X base_key_weight, without a
//   bias, in place of X. Emits key_weight [G, ceil(w / 16), head_size, 16] and value_weight [G,
//   ceil(value_size / 16), w, 16], w = d without a base.
//
// Refuses what has no inverse, and what adds a larger error than Measure allows for the storage.
#ifndef GRAFT_PLUGINS_ROW_ATTENTION_FOLD_HOOK_H_
#define GRAFT_PLUGINS_ROW_ATTENTION_FOLD_HOOK_H_

#include <string>
#include <vector>

#include "fold.h"
#include "graft.h"

namespace graft {
namespace fold {

struct Hooks {
  static void Fold(const FoldContext& context) {
    const std::string name = context.operator_name();
    if (name == "KeyAttention") return FoldKeys(context);
    if (name == "ELAttention" || name == "InputAttention") return FoldInputs(context);
    throw Error(GRAFT_ERROR_INVALID_ARGUMENT,
                Text("fold: operator ", name,
                     " has nothing to fold, needed is KeyAttention, ELAttention or "
                     "InputAttention"));
  }

 private:
  struct Sizes {
    int64_t heads, kv_heads, head_size, value_size;
    Storage storage;

    explicit Sizes(const FoldContext& context)
        : heads(context.Int("num_heads", 0)),
          kv_heads(context.Int("kv_num_heads", 0)),
          head_size(context.Int("head_size", 0)),
          value_size(context.Int("value_size", 0)),
          storage(StorageNamed(context.String("storage", "float32"))) {
      if (kv_heads == 0) kv_heads = heads;
      if (value_size == 0) value_size = head_size;
      Require(heads > 0 && kv_heads > 0 && heads % kv_heads == 0, "fold: num_heads is ", heads,
              ", needed is a multiple of kv_num_heads ", kv_heads);
      Require(head_size > 0 && value_size > 0, "fold: head_size is ", head_size, " and value_size ",
              value_size, ", needed are positive numbers");
    }
  };

  static Storage StorageNamed(const std::string& name) {
    if (name == "float16") return Storage::kFloat16;
    if (name == "bfloat16") return Storage::kBfloat16;
    if (name == "int8") return Storage::kInt8;
    Require(name == "float32", "fold: storage is ", name,
            ", needed is float32, float16, bfloat16 or int8");
    return Storage::kFloat32;
  }

  static const char* NameOf(Storage storage) {
    switch (storage) {
      case Storage::kFloat16:
        return "float16";
      case Storage::kBfloat16:
        return "bfloat16";
      case Storage::kInt8:
        return "int8";
      case Storage::kFloat32:
        break;
    }
    return "float32";
  }

  static Matrix MatrixOf(const FoldContext& context, const char* name, int64_t columns) {
    const Tensor tensor = context.Constant(name);
    Require(tensor.type() == kFloat64 && tensor.rank() == 2, "fold: ", name, " has rank ",
            tensor.rank(), ", needed is a real matrix");
    Require(columns < 0 || tensor.dim(1) == columns, "fold: ", name, " has ", tensor.dim(1),
            " columns, needed are ", columns);
    return {tensor.data<double>(), tensor.dim(0), tensor.dim(1)};
  }

  // Null where the constant is absent.
  static const double* VectorOf(const FoldContext& context, const char* name, int64_t length) {
    if (!context.Has(name)) return nullptr;
    const Tensor tensor = context.Constant(name);
    Require(tensor.type() == kFloat64 && tensor.elements() == length, "fold: ", name, " has ",
            tensor.elements(), " elements, needed are ", length, " real ones");
    return tensor.data<double>();
  }

  // base^-1 weight, or a refusal.
  static std::vector<double> Checked(const FoldContext& context, const Inverse& inverse,
                                     const Matrix& base, const double* base_bias,
                                     const Matrix& weight, const double* bias, int64_t head_size,
                                     const char* what, Storage storage,
                                     std::vector<double>* folded_bias) {
    if (!inverse.fault().empty()) context.Refuse("the key weight is ", inverse.fault());
    std::vector<double> folded = inverse.Times(weight);
    const Matrix view{folded.data(), base.columns, weight.columns};
    *folded_bias = FoldBias(base_bias, view, bias);
    const Measured m =
        Measure(base, base_bias, weight, bias, view, folded_bias->data(), head_size, storage);
    if (!m.holds()) {
      context.Refuse("computing ", what, " from cached keys adds an error of ", m.error, " (head ",
                     m.head, "), above ", m.allowed, " for ", NameOf(storage),
                     "; the key weight has a condition number of about ", inverse.condition());
    }
    return folded;
  }

  static void FoldKeys(const FoldContext& context) {
    const Sizes s(context);
    Require(s.heads == s.kv_heads, "fold: KeyAttention has ", s.heads, " heads and ", s.kv_heads,
            " of keys, needed are as many");
    const Matrix key = MatrixOf(context, "key_weight", s.heads * s.head_size);
    const Matrix value = MatrixOf(context, "value_weight", s.heads * s.value_size);
    Require(key.rows == value.rows, "fold: key_weight has ", key.rows, " rows and value_weight ",
            value.rows, ", needed are as many");
    const double* key_bias = VectorOf(context, "key_bias", key.columns);
    const double* value_bias = VectorOf(context, "value_bias", value.columns);
    const Inverse inverse(key);
    std::vector<double> bias;
    const std::vector<double> folded = Checked(context, inverse, key, key_bias, value, value_bias,
                                               s.value_size, "values", s.storage, &bias);
    const std::vector<double> panels =
        ColumnPanels({folded.data(), key.columns, value.columns}, s.heads);
    context.Emit("value_weight", {s.heads, graft_panels(s.value_size), key.columns, kPanel},
                 panels.data());
    context.Emit("value_bias", {value.columns}, bias.data());
  }

  static void FoldInputs(const FoldContext& context) {
    const Sizes s(context);
    Matrix key = MatrixOf(context, "key_weight", s.kv_heads * s.head_size);
    Matrix value = MatrixOf(context, "value_weight", s.kv_heads * s.value_size);
    Require(key.rows == value.rows, "fold: key_weight has ", key.rows, " rows and value_weight ",
            value.rows, ", needed are as many");
    std::vector<double> keys, values, bias;
    if (context.Has("base_key_weight")) {
      const Matrix base = MatrixOf(context, "base_key_weight", -1);
      Require(base.rows == key.rows, "fold: base_key_weight has ", base.rows,
              " rows and key_weight ", key.rows, ", needed are as many");
      const Inverse inverse(base);
      keys = Checked(context, inverse, base, nullptr, key, nullptr, s.head_size, "keys", s.storage,
                     &bias);
      values = Checked(context, inverse, base, nullptr, value, nullptr, s.value_size, "values",
                       s.storage, &bias);
      key = {keys.data(), base.columns, key.columns};
      value = {values.data(), base.columns, value.columns};
    }
    Emit(context, "key_weight", s.kv_heads, graft_panels(key.rows), s.head_size,
         RowPanels(key, s.kv_heads));
    Emit(context, "value_weight", s.kv_heads, graft_panels(s.value_size), value.rows,
         ColumnPanels(value, s.kv_heads));
  }

  static void Emit(const FoldContext& context, const char* name, int64_t heads, int64_t panels,
                   int64_t length, const std::vector<double>& data) {
    context.Emit(name, {heads, panels, length, kPanel}, data.data());
  }
};

}  // namespace fold
}  // namespace graft

#endif  // GRAFT_PLUGINS_ROW_ATTENTION_FOLD_HOOK_H_
