// The memory of an index of n-grams: the same on the device as on the CPU (plugins/ngram-block,
// index.h), so that an index begun on one may be used on the other. Plain C++.
//
// Tokens are nodes of a forest, a row is the node of its last token, and rows that continue one row
// share everything up to it. All arrays follow from the memory's size alone; only how many nodes
// and rows there are is known to the device alone.
#ifndef GRAFT_KERNELS_CUDA_NGRAM_BLOCK_INDEX_LAYOUT_H_
#define GRAFT_KERNELS_CUDA_NGRAM_BLOCK_INDEX_LAYOUT_H_

#include <cstdint>

namespace graft {
namespace cuda {
namespace ngram_block {

// Why a step was not taken; stands in the header until the next step.
enum IndexFault : int32_t {
  kIndexGood = 0,
  kIndexForeign = 1,  // made elsewhere, with another size or another n
  kIndexRows = 2,     // more rows than it has room for
  kIndexParents = 3,  // a row continues one that the step before did not have
  kIndexRoom = 4,     // more tokens than it has room for, even without what no row needs
};

struct IndexHeader {
  uint32_t magic;
  int32_t nodes;
  int64_t bytes;
  int64_t ngram_size;
  int32_t capacity;  // nodes
  int32_t buckets;   // a power of two
  int32_t max_rows;
  int32_t rows;
  int64_t fault;  // an IndexFault of the last step on a device
  int64_t unused[2];
};
static_assert(sizeof(IndexHeader) == 64, "arrays begin on a cache line");

constexpr uint32_t kIndexMagic = 0x6d617267;
constexpr int64_t kIndexAlignment = 64;
constexpr int64_t kIndexLeastBytes = 360;  // what the CPU takes at least
constexpr int64_t kIndexMostBytes = int64_t{1} << 34;

// The arrays of an index, in device memory.
struct IndexView {
  IndexHeader* header = nullptr;
  int64_t bytes = 0, ngram_size = 0;
  int32_t capacity = 0, buckets = 0, max_rows = 0;
  int32_t* token = nullptr;
  int32_t* parent = nullptr;  // the token before, -1 at a row's first
  int32_t* jump = nullptr;    // an ancestor far away; itself at a root
  int32_t* depth = nullptr;   // tokens before it
  int32_t* run = nullptr;     // the first of the nodes up to this one that stand side by side
  int32_t* root = nullptr;    // the row's first token
  int32_t* next = nullptr;    // in its bucket; -1 ends it
  int32_t* bucket = nullptr;
  int32_t* head = nullptr;    // the last token of each row, -1 for an empty row
  int32_t* before = nullptr;  // during a step: the node that each row continues
};

// False when the memory's address or size is none of an index.
inline bool MakeIndexView(void* memory, int64_t bytes, int64_t ngram_size, IndexView* view) {
  if (reinterpret_cast<uintptr_t>(memory) % kIndexAlignment != 0 || bytes < kIndexLeastBytes ||
      bytes > kIndexMostBytes || ngram_size < 1) {
    return false;
  }
  constexpr int64_t kNodeBytes = 36, kRowBytes = 8;
  const int64_t room = bytes - static_cast<int64_t>(sizeof(IndexHeader));
  view->header = static_cast<IndexHeader*>(memory);
  view->bytes = bytes;
  view->ngram_size = ngram_size;
  view->max_rows = static_cast<int32_t>(room / 8 / kRowBytes);
  view->capacity = static_cast<int32_t>((room - view->max_rows * kRowBytes) / kNodeBytes);
  view->buckets = 1;
  while (view->buckets < view->capacity) view->buckets *= 2;
  auto* at = reinterpret_cast<int32_t*>(view->header + 1);
  const int64_t capacity = view->capacity;
  view->token = at;
  view->parent = at + capacity;
  view->jump = at + 2 * capacity;
  view->depth = at + 3 * capacity;
  view->run = at + 4 * capacity;
  view->root = at + 5 * capacity;
  view->next = at + 6 * capacity;
  view->bucket = at + 7 * capacity;
  view->head = view->bucket + view->buckets;
  view->before = view->head + view->max_rows;
  return true;
}

}  // namespace ngram_block
}  // namespace cuda
}  // namespace graft

#endif  // GRAFT_KERNELS_CUDA_NGRAM_BLOCK_INDEX_LAYOUT_H_
