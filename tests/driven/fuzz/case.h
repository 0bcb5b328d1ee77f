// One drive of an operator, as text: what node a model has, and what is fed to it.
//
//   operator CachedAttention
//   int num_heads 2
//   string output_layout bhsd
//   input query float32 2,2,1,2 random 1 -1 1
//   input sequences int32 1,8 values 0 2 0 3 0 2 0 0
//   constant weight float32 4,8 random 2 -1 1 set 3 nan
//   output output
//
// Dimensions of a scalar are "-". A list of values that is shorter than its tensor starts again. A
// constant is an initializer of the model. "declared 4,?" after an input's dimensions is the shape
// that the model states; without it the model states none.
#ifndef GRAFT_TESTS_DRIVEN_CASE_H_
#define GRAFT_TESTS_DRIVEN_CASE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace graft::driven {

// Numbers of ONNX's TensorProto.DataType, which are those of ONNXTensorElementDataType.
enum class Type {
  kFloat32 = 1,
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kInt32,
  kInt64,
  kBool = 9,
  kFloat16,
  kFloat64,
  kUint32,
  kUint64,
  kBFloat16 = 16,
};

size_t SizeOf(Type type);
bool IsFloat(Type type);
const char* NameOf(Type type);

// An element or attribute: i of an integer, f of any other.
struct Number {
  int64_t i = 0;
  double f = 0;
};

struct Input {
  std::string name;
  Type type = Type::kFloat32;
  std::vector<int64_t> dims;
  bool constant = false;
  bool stated = false;
  std::vector<int64_t> declared;  // negative: a symbol
  uint64_t seed = 0;
  double low = -1, high = 1;
  std::vector<Number> values;                    // empty: random ones of seed
  std::vector<std::pair<int64_t, Number>> sets;  // element, value

  // The product of dims, or -1 where it is too large to be counted or a factor is negative.
  int64_t elements() const;
  // The elements as stored in memory.
  std::string Bytes() const;
};

struct Attribute {
  enum Kind { kInt, kFloat, kString, kInts, kFloats } kind = kInt;
  std::string name;
  Number number;
  std::string text;
  std::vector<Number> list;
};

struct Case {
  std::string op;
  std::vector<Attribute> attributes;
  std::vector<Input> inputs;
  std::vector<std::string> outputs;

  Input* Find(const std::string& name);
  std::string Text() const;
  // What of the case is in the model: cases with one key run in one session.
  std::string Key() const;
};

// Reads a case; throws std::runtime_error with the line that is wrong.
Case Parse(const std::string& text);

}  // namespace graft::driven

#endif  // GRAFT_TESTS_DRIVEN_CASE_H_
