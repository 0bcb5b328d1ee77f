// Writes small ONNX models, in the protobuf wire format, for tests that have no protobuf library.
#ifndef GRAFT_TESTS_ONNX_MODEL_H_
#define GRAFT_TESTS_ONNX_MODEL_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace graft::test {

// Appends fields of one protobuf message. Numbers are those of onnx.proto.
class Proto {
 public:
  Proto& Int(int field, int64_t value) {
    Varint(static_cast<uint64_t>(field) << 3);
    Varint(static_cast<uint64_t>(value));
    return *this;
  }
  Proto& Float(int field, float value) {
    Varint(static_cast<uint64_t>(field) << 3 | 5);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Proto& String(int field, const std::string& value) {
    Varint(static_cast<uint64_t>(field) << 3 | 2);
    Varint(value.size());
    bytes_ += value;
    return *this;
  }
  Proto& Message(int field, const Proto& value) { return String(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void Varint(uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_ += static_cast<char>(value | 128);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

// A node's attribute.
class Attribute {
 public:
  Attribute(const char* name, int64_t value) { Named(name).Int(3, value).Int(20, 2); }
  Attribute(const char* name, float value) { Named(name).Float(2, value).Int(20, 1); }
  Attribute(const char* name, const char* value) { Named(name).String(4, value).Int(20, 3); }
  Attribute(const char* name, const std::vector<int64_t>& values) {
    for (const int64_t value : values) Named(name).Int(8, value);
    proto_.Int(20, 7);
  }
  Attribute(const char* name, const std::vector<float>& values) {
    for (const float value : values) Named(name).Float(7, value);
    proto_.Int(20, 6);
  }
  const Proto& proto() const { return proto_; }

 private:
  Proto& Named(const char* name) { return proto_.String(1, name); }
  Proto proto_;
};

// A model. Nodes are of the domain "graft" and tensors are float unless said otherwise.
class Model {
 public:
  Model& Node(const char* op, const std::vector<std::string>& inputs,
              const std::vector<std::string>& outputs,
              const std::vector<Attribute>& attributes = {}, const std::string& domain = "graft") {
    Proto node;
    for (const std::string& name : inputs) node.String(1, name);
    for (const std::string& name : outputs) node.String(2, name);
    node.String(4, op).String(7, domain);
    for (const Attribute& attribute : attributes) node.Message(5, attribute.proto());
    graph_.Message(1, node);
    return *this;
  }
  // A size of -1 is a symbol of its own.
  Model& Input(const std::string& name, const std::vector<int64_t>& shape) {
    Proto dims;
    for (const int64_t size : shape) {
      Proto dim;
      if (size < 0) {
        dim.String(2, name + std::to_string(symbols_++));
      } else {
        dim.Int(1, size);
      }
      dims.Message(1, dim);
    }
    graph_.Message(11, Info(name, Proto().Int(1, 1).Message(2, dims)));
    return *this;
  }
  Model& Output(const std::string& name, bool is_int64 = false) {
    graph_.Message(12, Info(name, Proto().Int(1, is_int64 ? 7 : 1)));
    return *this;
  }
  Model& Constant(const std::string& name, const std::vector<float>& values) {
    std::string raw(values.size() * sizeof(float), 0);
    std::memcpy(raw.data(), values.data(), raw.size());
    graph_.Message(5, Proto()
                          .Int(1, static_cast<int64_t>(values.size()))
                          .Int(2, 1)
                          .String(8, name)
                          .String(9, raw));
    return *this;
  }
  std::string Bytes() {
    graph_.String(2, "test");
    return Proto()
        .Int(1, 9)
        .Message(7, graph_)
        .Message(8, Proto().String(1, "").Int(2, 18))
        .Message(8, Proto().String(1, "graft").Int(2, 1))
        .bytes();
  }

 private:
  static Proto Info(const std::string& name, const Proto& tensor_type) {
    return Proto().String(1, name).Message(2, Proto().Message(1, tensor_type));
  }
  Proto graph_;
  int symbols_ = 0;
};

}  // namespace graft::test

#endif  // GRAFT_TESTS_ONNX_MODEL_H_
