#include <string>

#include "graft/cuda.h"
#include "key_attention_cuda.h"
#include "slim-attention/slim_attention.cuh"

namespace graft {
namespace row_attention_cuda {
namespace {

namespace slim = cuda::slim_attention;

cuda::Type RowType(row_attention::Storage storage) {
  switch (storage) {
    case row_attention::Storage::kFloat16:
      return cuda::Type::kFloat16;
    case row_attention::Storage::kBfloat16:
      return cuda::Type::kBFloat16;
    case row_attention::Storage::kFloat32:
    case row_attention::Storage::kInt8:  // refused when the operator was made
      break;
  }
  return cuda::Type::kFloat32;
}

slim::Rotary RotaryOf(row_attention::Rotary rotary) {
  switch (rotary) {
    case row_attention::Rotary::kHalf:
      return slim::Rotary::kHalf;
    case row_attention::Rotary::kInterleaved:
      return slim::Rotary::kInterleaved;
    case row_attention::Rotary::kNone:
      break;
  }
  return slim::Rotary::kNone;
}

// The same call as the kernel on a device takes it.
slim::Problem ProblemOf(const char* name, const row_attention::Problem& from) {
  const std::string fault = row_attention::ValidateSizes(from);
  Require(fault.empty(), name, ": ", fault);
  const Size keys = Size(from.shared_length) + from.private_length;
  cuda::RequireCountable(name, {from.tokens, from.heads, from.pool.width});
  cuda::RequireCountable(name, {from.tokens, from.heads, from.head_size, from.value_size});
  cuda::RequireCountable(name, {keys, from.heads, from.value_size});
  cuda::RequireCountable(name, {keys, from.tokens, from.heads});
  const Size panels = DivideUp(Size(from.value_size), cuda::kPanel);
  slim::Problem p;
  p.tokens = from.tokens;
  p.groups = from.groups;
  p.heads = from.heads;
  p.head_size = from.head_size;
  p.value_size = from.value_size;
  p.rows = from.pool.data + Size(from.pool.offset);
  p.row_type = RowType(from.pool.storage);
  p.row_stride = from.pool.width;
  p.block_stride = Size(from.pool.block_floats) * 4 / from.pool.element_bytes();
  p.slots = from.pool.slots();
  p.sequences = from.sequences;
  p.shared_slots = from.shared_slots;
  p.private_slots = from.private_slots;
  p.shared_length = from.shared_length;
  p.private_length = from.private_length;
  p.query = from.query;
  p.query_stride = from.query_stride;
  p.value_weight = from.value_weight;
  p.weight_row = cuda::kPanel;
  p.weight_panel = Size(p.width()) * cuda::kPanel;
  p.weight_head = panels * p.weight_panel;
  p.value_bias = from.value_bias;
  p.bias = from.bias;
  p.distances = from.distances;
  p.rotary = RotaryOf(from.rotary);
  p.rotated = from.rotated;
  p.cosine = from.cosine;
  p.sine = from.sine;
  p.angles = from.positions;
  p.pairs = from.pairs;
  p.skip = from.skip;
  p.scale = from.scale;
  p.softcap = from.softcap;
  p.window = from.window;
  p.output_stride = Size(from.heads) * from.value_size;
  return p;
}

}  // namespace

uint64_t KeyAttention::Workspace(const WorkspaceContext& context) const {
  return static_cast<uint64_t>(
      slim::WorkspaceOf(ProblemOf(name_, Bind(context.inputs)), cuda::Limits()));
}

void KeyAttention::Run(const RunContext& context) const {
  const row_attention::Problem bound = Bind(context.inputs);
  Require((bound.input != nullptr) == (bound.slot_mapping != nullptr), name_,
          ": key and slot_mapping must be given together");
  slim::Problem p = ProblemOf(name_, bound);
  if (p.tokens == 0) return;
  p.output = context.outputs[0].data<float>();
  if (context.outputs[1].present()) p.skipped = context.outputs[1].data<float>();
  const cuda::Stream stream = cuda::StreamOf(context);
  if (bound.slot_mapping != nullptr) {
    cuda::Check(slim::Store({const_cast<void*>(p.rows), p.row_type, p.row_stride, p.block_stride,
                             p.slots, p.width(), bound.input, cuda::Type::kFloat32,
                             bound.input_stride, bound.slot_mapping, p.tokens},
                            stream),
                name_);
  }
  const slim::Plan plan = slim::MakePlan(p, cuda::Limits());
  cuda::Check(slim::Run(p, plan, context.workspace(), stream), name_);
}

}  // namespace row_attention_cuda
}  // namespace graft
