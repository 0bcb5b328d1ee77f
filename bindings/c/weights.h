// The weights of a rewritten graph that lie in files.
#ifndef GRAFT_C_WEIGHTS_H_
#define GRAFT_C_WEIGHTS_H_

#include "text.h"

namespace graft {

// A tensor with external data, as an ONNX graph has it. Texts are in the graph's bytes.
struct External {
  const char *name, *location;
  size_t name_size, location_size;
  const int64_t* dims;  // rank many, from the list that Externals holds
  size_t rank, first_dim;
  int type;  // ONNX's number of the element type, which is ONNX Runtime's too
  uint64_t offset, length;
};

// The tensors of a graph whose bytes lie in files.
class Externals {
 public:
  // Reads them from an encoded model. Not ok where that is none.
  bool Read(const unsigned char* model, size_t size);

  size_t size() const { return list_.size(); }
  const External& operator[](size_t i) const { return list_[i]; }
  // Those of graphs inside of nodes.
  const List<External>& nested() const { return nested_; }

 private:
  struct View;
  bool Graph(View v, int depth);
  bool Node(View v, int depth);
  bool Tensor(View v, int depth);

  List<External> list_, nested_;
  List<int64_t> dims_;
};

}  // namespace graft

#endif  // GRAFT_C_WEIGHTS_H_
