// The operator StoreRows on CUDA: the signature of store_rows.h.
#ifndef GRAFT_PLUGINS_ROW_ATTENTION_CUDA_STORE_ROWS_H_
#define GRAFT_PLUGINS_ROW_ATTENTION_CUDA_STORE_ROWS_H_

#include "../store_rows.h"
#include "el-attention/store.cuh"
#include "hidden_state_attention.h"

namespace graft {
namespace row_attention_cuda {

class StoreRows : public row_attention::StoreRows {
 public:
  explicit StoreRows(const CreateContext& context) : row_attention::StoreRows(context) {
    attention::RequireOnDevice("StoreRows", "storage", storage_, true);
  }

  void Run(const RunContext& context) const {
    const row_attention::StoreProblem p = Bind(context);
    const el::Rows rows = RowsOf("StoreRows", p.pool);
    const cuda::Stream stream = cuda::StreamOf(context);
    cuda::Check(el::StoreRows(rows, p.rows, rows.width, p.slot_mapping, p.count, stream),
                "StoreRows");
    cuda::Check(
        el::CountStored(rows, p.slot_mapping, p.count, context.outputs[0].data<int32_t>(), stream),
        "StoreRows");
  }
};

}  // namespace row_attention_cuda
}  // namespace graft

#endif  // GRAFT_PLUGINS_ROW_ATTENTION_CUDA_STORE_ROWS_H_
