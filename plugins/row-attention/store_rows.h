// The operator StoreRows: rows of whole sequences, written into a pool.
#ifndef GRAFT_PLUGINS_ROW_ATTENTION_STORE_ROWS_H_
#define GRAFT_PLUGINS_ROW_ATTENTION_STORE_ROWS_H_

#include <cstdint>
#include <string>

#include "hidden_state_attention.h"

namespace graft {
namespace row_attention {

// Stores rows in a pool: what attention over rows reads afterwards. Inputs:
//
//   rows   [..., width]
//   cache  [blocks, floats], rows of `width` at `offset` in every block, written in place
//   slot_mapping  a slot for each row, or -1 for rows to leave out
//
// Output: int32 [1], the number of rows stored. Nodes that read the slots must come after it.
class StoreRows {
 public:
  static Operator Describe() {
    return Operator("StoreRows", "rows of whole sequences, written into a pool")
        .Input("rows", kFloat32)
        .Input("cache", kFloat32)
        .Input("slot_mapping", kInt32)
        .Output("count", kInt32)
        .Int("width", 0)
        .Required()
        .Int("offset", 0)
        .String("storage", "float32");
  }

  explicit StoreRows(const CreateContext& context)
      : width_(context.Int("width")),
        offset_(context.Int("offset")),
        storage_(attention::StorageOf("StoreRows", "storage", context.String("storage"))) {
    Require(width_ > 0 && offset_ >= 0, "StoreRows: width is ", width_, " and offset ", offset_,
            ", needed are at least 1 and 0");
  }

  void Infer(InferContext& context) const { context.SetOutput(0, kInt32, {1}); }

  void Run(const RunContext& context) const {
    const StoreProblem p = Bind(context);
    const std::string fault = Validate(p);
    Require(fault.empty(), "StoreRows: ", fault);
    *context.outputs[0].data<int32_t>() =
        static_cast<int32_t>(row_attention::Run(p, attention::RunnerOf(context)));
  }

 protected:
  StoreProblem Bind(const RunContext& context) const {
    const Tensor rows = context.inputs[0], slot_mapping = context.inputs[2];
    StoreProblem p;
    p.pool = RowsIn("StoreRows", context.inputs[1], width_, offset_, storage_);
    p.count = slot_mapping.elements();
    const Size needed = Size(slot_mapping.elements()) * width_;
    Require(rows.elements() == needed, "StoreRows: rows has ", rows.elements(), " elements, ",
            p.count, " slots of ", width_, " need ", needed);
    p.rows = DataOf<float>(rows);
    p.slot_mapping = DataOf<int32_t>(slot_mapping);
    return p;
  }

 private:
  int64_t width_, offset_;

 protected:
  Storage storage_;
};

}  // namespace row_attention
}  // namespace graft

#endif  // GRAFT_PLUGINS_ROW_ATTENTION_STORE_ROWS_H_
