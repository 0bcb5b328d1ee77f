// An index of the n-grams of generated rows that grows with each token, in memory of the host's.
//
// Tokens are nodes of a forest: a node knows its token and the node before it, and a row is the
// node of its last token. Rows that continue one row share everything up to it, so the prompt
// stands once for all beams of a request, and a reorder changes one number a row. The (n-1)-gram
// before a node is the key that the node is found by; a row is answered with those found nodes that
// are its own ancestors, so it never sees what was generated in another beam.
//
// The memory may be a stranger's: sizes follow from its length alone, and a number read from it is
// an earlier node or an error, so that nothing outside is touched and every walk ends.
//
// Nothing is thread-safe but ForEachBanned on an index that no thread advances.
#ifndef GRAFT_PLUGINS_NGRAM_BLOCK_INDEX_H_
#define GRAFT_PLUGINS_NGRAM_BLOCK_INDEX_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "graft/checked.h"

namespace graft {
namespace ngram {

class Index {
 public:
  static constexpr int64_t kAlignment = 64;

  // Bytes for `nodes` tokens at once (each prompt counts once, each generated token once a row) in
  // up to `rows` rows.
  static Size Bytes(Size nodes, Size rows) {
    const Size room = std::max<int64_t>(DivideUp(nodes * kNodeBytes, 7) * 8, rows * 8 * kRowBytes);
    return room + sizeof(Header) + 8;
  }

  // Binds to `bytes` at `data`, which either hold an index of the same ngram_size or are all zeros.
  // An eighth of the memory is reserved for rows. Throws graft::Error.
  Index(void* data, int64_t bytes, int64_t ngram_size) : n_(ngram_size) {
    Require(reinterpret_cast<uintptr_t>(data) % kAlignment == 0,
            "the n-gram index begins at an address that is no multiple of ", kAlignment,
            "; align its memory");
    Require(bytes >= Bytes(16, 4) && bytes <= int64_t{1} << 34, "the n-gram index has ", bytes,
            " bytes, needed are ", Bytes(16, 4), " to 2^34");
    header_ = static_cast<Header*>(data);
    const int64_t room = bytes - static_cast<int64_t>(sizeof(Header));
    max_rows_ = static_cast<int32_t>(room / 8 / kRowBytes);
    capacity_ = static_cast<int32_t>((room - max_rows_ * kRowBytes) / kNodeBytes);
    buckets_ = 1;
    while (buckets_ < capacity_) buckets_ *= 2;
    const int64_t capacity = capacity_;
    int32_t* at = reinterpret_cast<int32_t*>(header_ + 1);
    token_ = at;
    parent_ = at + capacity;
    jump_ = at + 2 * capacity;
    depth_ = at + 3 * capacity;
    run_ = at + 4 * capacity;
    root_ = at + 5 * capacity;
    next_ = at + 6 * capacity;
    bucket_ = at + 7 * capacity;
    head_ = bucket_ + buckets_;
    new_head_ = head_ + max_rows_;
    if (header_->magic == 0) Format(bytes);
    Require(header_->magic == kMagic && header_->bytes == bytes,
            "the n-gram index was made elsewhere or with another size (found ", header_->bytes,
            " bytes, needed ", bytes, "); fill its memory with zeros to begin anew");
    Require(header_->ngram_size == n_, "the n-gram index was made for n = ", header_->ngram_size,
            ", needed is n = ", n_, "; fill its memory with zeros to begin anew");
    nodes_ = header_->nodes;
    rows_ = header_->rows;
    if (nodes_ < 0 || nodes_ > capacity_ || rows_ < 0 || rows_ > max_rows_ ||
        header_->capacity != capacity_ || header_->buckets != buckets_ ||
        header_->max_rows != max_rows_) {
      Damaged();
    }
  }

  int64_t rows() const { return rows_; }
  int64_t nodes() const { return nodes_; }
  int64_t capacity() const { return capacity_; }
  // Tokens of a row.
  int64_t length(int64_t row) const {
    const int32_t head = Node(head_[row]);
    return head < 0 ? 0 : int64_t{depth_[head]} + 1;
  }

  // The next step: row r of `rows` continues row parents[r] of the step before (-1: it begins anew)
  // with tokens[r * stride .. + lengths(r)). Tokens must have been checked. When it throws, the
  // rows are as before.
  template <typename T, typename Lengths>
  void Advance(const int32_t* parents, const T* tokens, int64_t stride, int64_t rows,
               const Lengths& lengths) {
    Require(rows <= max_rows_, "the n-gram index has room for ", max_rows_, " rows, needed are ",
            rows, "; give it at least ", Bytes(capacity_, rows), " bytes");
    Size more = 0;
    for (int64_t r = 0; r < rows; ++r) {
      Require(parents[r] >= -1 && parents[r] < rows_, "row ", r, " continues row ", parents[r],
              ", the step before had ", rows_, " rows");
      more += lengths(r);
    }
    if (more + nodes_ > capacity_) Compact(parents, rows, more);
    for (int64_t r = 0; r < rows; ++r) {
      int32_t node = parents[r] < 0 ? -1 : Node(head_[parents[r]]);
      const int64_t count = lengths(r);
      for (int64_t i = 0; i < count; ++i) {
        node = Grow(node, static_cast<int32_t>(tokens[r * stride + i]));
      }
      new_head_[r] = node;
    }
    std::memcpy(head_, new_head_, static_cast<size_t>(rows) * sizeof *head_);
    rows_ = static_cast<int32_t>(rows);
    header_->nodes = nodes_;
    header_->rows = rows_;
  }

  // Calls ban(token) for every token that would repeat an n-gram of the row; a token may come
  // several times.
  template <typename Ban>
  void ForEachBanned(int64_t row, const Ban& ban) const {
    const int32_t head = Node(head_[row]);
    if (head < 0 || int64_t{depth_[head]} + 1 < n_) return;
    if (n_ == 1) {
      for (int32_t node = head; node >= 0; node = Before(parent_, node)) ban(token_[node]);
      return;
    }
    // A bucket's nodes stand in any order, where a device made them: each at most once.
    int32_t left = nodes_;
    for (int32_t node = Node(bucket_[Slot(head)]); node >= 0; node = Node(next_[node])) {
      if (left-- == 0) Damaged();
      if (root_[node] == root_[head] && SameContext(Before(parent_, node), head) &&
          IsAncestor(node, head)) {
        ban(token_[node]);
      }
    }
  }

 private:
  static constexpr uint32_t kMagic = 0x6d617267;
  static constexpr int64_t kNodeBytes = 36;  // seven numbers and, at most, two buckets
  static constexpr int64_t kRowBytes = 8;

  struct Header {
    uint32_t magic;
    int32_t nodes;
    int64_t bytes;
    int64_t ngram_size;
    int32_t capacity;  // nodes
    int32_t buckets;   // a power of two
    int32_t max_rows;
    int32_t rows;
    int64_t unused[3];
  };
  static_assert(sizeof(Header) == 64, "arrays begin on a cache line");

  [[noreturn]] static void Damaged() {
    throw Error(GRAFT_ERROR_INVALID_ARGUMENT,
                "the n-gram index holds what none does; fill its memory with zeros to begin anew");
  }
  // A number that stands for a node, or -1.
  int32_t Node(int32_t node) const {
    if (node < -1 || node >= nodes_) Damaged();
    return node;
  }
  // What a list holds for a node that is there: an earlier node, or -1.
  static int32_t Before(const int32_t* list, int32_t node) {
    const int32_t before = list[node];
    if (before < -1 || before >= node) Damaged();
    return before;
  }
  // As Before, of a list that may hold the node itself and holds a node always.
  static int32_t UpTo(const int32_t* list, int32_t node) {
    const int32_t before = list[node];
    if (before < 0 || before > node) Damaged();
    return before;
  }

  void Format(int64_t bytes) {
    header_->max_rows = max_rows_;
    header_->capacity = capacity_;
    header_->buckets = buckets_;
    header_->nodes = header_->rows = 0;
    header_->bytes = bytes;
    header_->ngram_size = n_;
    EmptyBuckets();
    header_->magic = kMagic;
  }

  void EmptyBuckets() { std::fill(bucket_, bucket_ + buckets_, -1); }

  int32_t Grow(int32_t parent, int32_t token) {
    const int32_t node = nodes_++;
    token_[node] = token;
    parent_[node] = parent;
    if (parent < 0) {
      depth_[node] = 0;
      jump_[node] = run_[node] = root_[node] = node;
    } else {
      // Jumps of skew-binary lengths (Myers 1983): any ancestor is logarithmically many away.
      const int32_t first = UpTo(jump_, parent), second = UpTo(jump_, first);
      const int64_t depth = depth_[parent], middle = depth_[first];
      jump_[node] = depth - middle == middle - depth_[second] ? second : parent;
      depth_[node] = static_cast<int32_t>(depth + 1);
      root_[node] = root_[parent];
      run_[node] = parent == node - 1 ? run_[parent] : node;
    }
    if (n_ > 1 && depth_[node] >= n_ - 1) {
      int32_t* bucket = bucket_ + Slot(parent);
      next_[node] = *bucket;
      *bucket = node;
    }
    return node;
  }

  // The bucket of what follows the n - 1 tokens that end at `node`.
  int64_t Slot(int32_t node) const {
    if (node < 0) Damaged();
    uint64_t hash = static_cast<uint32_t>(root_[node]);
    for (int64_t i = 1; i < n_ && node >= 0; ++i, node = Before(parent_, node)) {
      hash = (hash ^ static_cast<uint32_t>(token_[node])) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 29;
    }
    return static_cast<int64_t>(hash & static_cast<uint64_t>(buckets_ - 1));
  }

  bool SameContext(int32_t a, int32_t b) const {
    for (int64_t i = 1; i < n_; ++i, a = Before(parent_, a), b = Before(parent_, b)) {
      if (a < 0 || b < 0 || token_[a] != token_[b]) return false;
      if (a == b) return true;
    }
    return true;
  }

  // Whether `node` lies on the way from `below` to its root.
  bool IsAncestor(int32_t node, int32_t below) const {
    const int64_t depth = depth_[node];
    while (depth_[below] > depth) {
      if (depth_[UpTo(run_, below)] <= depth) return below - (depth_[below] - depth) == node;
      const int32_t jump = UpTo(jump_, below);
      below = jump < below && depth_[jump] >= depth ? jump : Before(parent_, below);
      if (below < 0) Damaged();
    }
    return below == node;
  }

  // Drops every node that no continued row needs, to make room for `more`; throws when that is not
  // enough. Nodes keep their order, so parents stay before children.
  void Compact(const int32_t* parents, int64_t rows, Size more) {
    const int32_t nodes = nodes_;
    std::vector<int32_t> place(static_cast<size_t>(nodes), -1);
    for (int64_t r = 0; r < rows; ++r) {
      const int32_t head = parents[r] < 0 ? -1 : Node(head_[parents[r]]);
      if (head >= 0) place[head] = 0;
    }
    int64_t kept = 0;
    for (int32_t node = nodes - 1; node >= 0; --node) {
      if (place[node] < 0) continue;
      ++kept;
      if (const int32_t parent = Before(parent_, node); parent >= 0) place[parent] = 0;
    }
    Require(more + kept <= capacity_, "the n-gram index has room for ", capacity_,
            " tokens, needed are ", more + kept, "; give it at least ", Bytes(more + kept, rows),
            " bytes");
    // Rows that nothing continues lose their nodes with this step, which cannot fail any more.
    for (int64_t r = 0; r < rows_; ++r) Node(head_[r]);
    nodes_ = 0;
    EmptyBuckets();
    for (int32_t node = 0; node < nodes; ++node) {
      if (place[node] < 0) continue;
      const int32_t parent = parent_[node];  // never above `node`
      place[node] = Grow(parent < 0 ? -1 : place[parent], token_[node]);
    }
    for (int64_t r = 0; r < rows_; ++r) {
      if (head_[r] >= 0) head_[r] = place[head_[r]];
    }
  }

  int64_t n_;
  Header* header_;
  // As the length of the memory says, and as the header said when this was made: what stands there
  // may change, so it is read once.
  int32_t capacity_ = 0, buckets_ = 0, max_rows_ = 0;
  int32_t nodes_ = 0, rows_ = 0;
  int32_t* token_;
  int32_t* parent_;  // the token before, -1 at a row's first
  int32_t* jump_;    // an ancestor far away; itself at a root
  int32_t* depth_;   // tokens before it
  int32_t* run_;     // the first of the nodes up to this one that stand side by side
  int32_t* root_;    // the row's first token
  int32_t* next_;    // in its bucket; -1 ends it
  int32_t* bucket_;
  int32_t* head_;  // the last token of each row, -1 for an empty row
  int32_t* new_head_;
};

}  // namespace ngram
}  // namespace graft

#endif  // GRAFT_PLUGINS_NGRAM_BLOCK_INDEX_H_
