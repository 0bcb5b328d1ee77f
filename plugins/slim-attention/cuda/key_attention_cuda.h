// KeyAttention on a device: the signature of the CPU's operator over kernels-cuda/slim-attention.
//
// Lists and slots stay on the device, where nothing refuses them: a slot or place that is out of
// range is a key that is not there, or a row that is not written.
#ifndef GRAFT_PLUGINS_SLIM_ATTENTION_CUDA_KEY_ATTENTION_CUDA_H_
#define GRAFT_PLUGINS_SLIM_ATTENTION_CUDA_KEY_ATTENTION_CUDA_H_

#include <cstdint>

#include "key_attention.h"

namespace graft {
namespace row_attention_cuda {

class KeyAttention : public row_attention::KeyAttention {
 public:
  explicit KeyAttention(const CreateContext& context) : row_attention::KeyAttention(context) {
    attention::RequireOnDevice(name_, "storage", storage_, true);
  }

  uint64_t Workspace(const WorkspaceContext& context) const;
  void Run(const RunContext& context) const;
};

}  // namespace row_attention_cuda
}  // namespace graft

#endif  // GRAFT_PLUGINS_SLIM_ATTENTION_CUDA_KEY_ATTENTION_CUDA_H_
