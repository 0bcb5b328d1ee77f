// How an author states an operator's signature, and how a kernel reads its attributes and
// constants.
#ifndef GRAFT_KIT_OPERATOR_H_
#define GRAFT_KIT_OPERATOR_H_

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <string>
#include <vector>

#include "graft/context.h"
#include "graft/error.h"
#include "graft/type.h"
#include "graft_plugin.h"

namespace graft {

// The types of a parameter: a list of its own, or a type variable that ties parameters together.
class Types {
 public:
  Types(DataType type) : list_{type} {}
  Types(std::initializer_list<DataType> types) : list_(types) {}
  Types(const char* variable) : variable_(variable) {}
  const std::vector<DataType>& list() const { return list_; }
  const std::string& variable() const { return variable_; }

 private:
  std::vector<DataType> list_;
  std::string variable_;
};

// An operator's description, built by chained calls:
//
//   Operator("FusedGelu", "y = x Phi(x)")
//       .TypeVariable("T", {kFloat32, kFloat16})
//       .Input("x", "T")
//       .Output("y", "T")
//       .String("approximate", "none")
class Operator {
 public:
  Operator(std::string name, std::string summary)
      : name_(std::move(name)), summary_(std::move(summary)) {}

  Operator& TypeVariable(std::string name, std::vector<DataType> types) {
    variables_.push_back({std::move(name), std::move(types)});
    return *this;
  }

  Operator& Input(std::string name, Types types, uint32_t flags = 0) {
    return Add(&inputs_, std::move(name), types, flags, 0);
  }
  Operator& OptionalInput(std::string name, Types types, uint32_t flags = 0) {
    return Add(&inputs_, std::move(name), types, flags | GRAFT_PARAMETER_OPTIONAL, 0);
  }
  Operator& VariadicInput(std::string name, Types types, uint32_t min_count, uint32_t flags = 0) {
    return Add(&inputs_, std::move(name), types, flags | GRAFT_PARAMETER_VARIADIC, min_count);
  }
  Operator& Output(std::string name, Types types, uint32_t flags = 0) {
    return Add(&outputs_, std::move(name), types, flags, 0);
  }
  Operator& OptionalOutput(std::string name, Types types, uint32_t flags = 0) {
    return Add(&outputs_, std::move(name), types, flags | GRAFT_PARAMETER_OPTIONAL, 0);
  }
  Operator& VariadicOutput(std::string name, Types types, uint32_t min_count, uint32_t flags = 0) {
    return Add(&outputs_, std::move(name), types, flags | GRAFT_PARAMETER_VARIADIC, min_count);
  }

  Operator& Int(std::string name, int64_t value) {
    NewAttribute(std::move(name), GRAFT_ATTRIBUTE_INT).c.int_value = value;
    return *this;
  }
  Operator& Float(std::string name, double value) {
    NewAttribute(std::move(name), GRAFT_ATTRIBUTE_FLOAT).c.float_value = value;
    return *this;
  }
  Operator& String(std::string name, std::string value) {
    NewAttribute(std::move(name), GRAFT_ATTRIBUTE_STRING).text = std::move(value);
    return *this;
  }
  Operator& Ints(std::string name, std::vector<int64_t> value) {
    NewAttribute(std::move(name), GRAFT_ATTRIBUTE_INTS).ints = std::move(value);
    return *this;
  }
  Operator& Floats(std::string name, std::vector<float> value) {
    NewAttribute(std::move(name), GRAFT_ATTRIBUTE_FLOATS).floats = std::move(value);
    return *this;
  }
  // Makes the attribute stated last one that every node must give.
  Operator& Required() {
    attributes_.back().c.flags |= GRAFT_ATTRIBUTE_REQUIRED;
    return *this;
  }

  Operator& SinceVersion(int32_t version) {
    since_version_ = version;
    return *this;
  }

  // Lays the description out in the C structs. The result points into *this, which must stay in
  // place.
  const graft_operator* Freeze() {
    c_ = graft_operator{};
    c_.size = sizeof c_;
    c_.name = name_.c_str();
    c_.summary = summary_.c_str();
    c_.since_version = since_version_;
    c_.inputs = Freeze(&inputs_, &input_pointers_, &c_.num_inputs);
    c_.outputs = Freeze(&outputs_, &output_pointers_, &c_.num_outputs);
    attribute_pointers_.clear();
    for (AttributeEntry& entry : attributes_) {
      entry.c.size = sizeof entry.c;
      entry.c.name = entry.name.c_str();
      if (entry.c.kind == GRAFT_ATTRIBUTE_STRING)
        Point(&entry.c, entry.text.c_str(), entry.text.size());
      if (entry.c.kind == GRAFT_ATTRIBUTE_INTS)
        Point(&entry.c, entry.ints.data(), entry.ints.size());
      if (entry.c.kind == GRAFT_ATTRIBUTE_FLOATS) {
        Point(&entry.c, entry.floats.data(), entry.floats.size());
      }
      attribute_pointers_.push_back(&entry.c);
    }
    c_.attributes = attribute_pointers_.data();
    c_.num_attributes = static_cast<uint32_t>(attribute_pointers_.size());
    return &c_;
  }

 private:
  struct Variable {
    std::string name;
    std::vector<DataType> types;
  };
  struct ParameterEntry {
    std::string name;
    std::vector<DataType> types;
    graft_parameter c;
  };
  struct AttributeEntry {
    std::string name;
    std::string text;
    std::vector<int64_t> ints;
    std::vector<float> floats;
    graft_attribute c;
  };

  Operator& Add(std::deque<ParameterEntry>* to, std::string name, const Types& types,
                uint32_t flags, uint32_t min_count) {
    ParameterEntry entry{std::move(name), types.list(), {}};
    entry.c.type_variable = -1;
    if (!types.variable().empty()) {
      for (size_t i = 0; i < variables_.size(); ++i) {
        if (variables_[i].name != types.variable()) continue;
        entry.c.type_variable = static_cast<int32_t>(i);
        entry.types = variables_[i].types;
      }
      Require(entry.c.type_variable >= 0, name_, ": ", entry.name, " has type ", types.variable(),
              ", which no TypeVariable before it states");
    }
    entry.c.flags = flags;
    entry.c.min_count = min_count;
    to->push_back(std::move(entry));
    return *this;
  }

  AttributeEntry& NewAttribute(std::string name, int32_t kind) {
    attributes_.emplace_back();
    attributes_.back().name = std::move(name);
    attributes_.back().c = graft_attribute{};
    attributes_.back().c.kind = kind;
    return attributes_.back();
  }

  static void Point(graft_attribute* attribute, const void* data, size_t count) {
    attribute->data = data;
    attribute->count = count;
  }

  static const graft_parameter* const* Freeze(std::deque<ParameterEntry>* entries,
                                              std::vector<const graft_parameter*>* pointers,
                                              uint32_t* count) {
    pointers->clear();
    for (ParameterEntry& entry : *entries) {
      entry.c.size = sizeof entry.c;
      entry.c.name = entry.name.c_str();
      entry.c.types = entry.types.data();
      entry.c.num_types = static_cast<uint32_t>(entry.types.size());
      pointers->push_back(&entry.c);
    }
    *count = static_cast<uint32_t>(pointers->size());
    return pointers->data();
  }

  std::string name_;
  std::string summary_;
  int32_t since_version_ = 1;
  std::vector<Variable> variables_;
  std::deque<ParameterEntry> inputs_;  // deques: frozen pointers into them stay valid
  std::deque<ParameterEntry> outputs_;
  std::deque<AttributeEntry> attributes_;
  std::vector<const graft_parameter*> input_pointers_;
  std::vector<const graft_parameter*> output_pointers_;
  std::vector<const graft_attribute*> attribute_pointers_;
  graft_operator c_{};
};

// What a kernel is made from. Valid only inside the constructor, but for the data of constants,
// which lives as long as the kernel.
class CreateContext {
 public:
  CreateContext(const graft_operator* description, const graft_create_request* request)
      : description_(description), request_(request) {}

  int64_t Int(const char* name) const { return Find(name, GRAFT_ATTRIBUTE_INT)->int_value; }
  double Float(const char* name) const { return Find(name, GRAFT_ATTRIBUTE_FLOAT)->float_value; }
  std::string String(const char* name) const {
    const graft_attribute* attribute = Find(name, GRAFT_ATTRIBUTE_STRING);
    return std::string(static_cast<const char*>(attribute->data), attribute->count);
  }
  std::vector<int64_t> Ints(const char* name) const {
    const graft_attribute* attribute = Find(name, GRAFT_ATTRIBUTE_INTS);
    const auto* data = static_cast<const int64_t*>(attribute->data);
    return std::vector<int64_t>(data, data + attribute->count);
  }
  std::vector<float> Floats(const char* name) const {
    const graft_attribute* attribute = Find(name, GRAFT_ATTRIBUTE_FLOATS);
    const auto* data = static_cast<const float*>(attribute->data);
    return std::vector<float>(data, data + attribute->count);
  }
  // An input whose value is known already; absent when it is not constant.
  Tensor Constant(uint32_t input) const {
    return Tensor(input < request_->num_constants ? request_->constants[input] : nullptr);
  }
  graft_device device() const { return request_->device; }

 private:
  // The value given, else the default that the description states.
  const graft_attribute* Find(const char* name, int32_t kind) const {
    const graft_attribute* found = nullptr;
    for (uint32_t i = 0; i < description_->num_attributes; ++i) {
      if (std::strcmp(description_->attributes[i]->name, name) == 0)
        found = description_->attributes[i];
    }
    Require(found != nullptr, description_->name, " states no attribute ", name);
    bool given = false;
    for (uint32_t i = 0; i < request_->num_attributes; ++i) {
      if (std::strcmp(request_->attributes[i]->name, name) != 0) continue;
      found = request_->attributes[i];
      given = true;
    }
    Require(given || (found->flags & GRAFT_ATTRIBUTE_REQUIRED) == 0, "attribute ", name,
            " is required and was not given");
    Require(found->kind == kind, "attribute ", name, " has kind ", found->kind, ", needed is ",
            kind);
    return found;
  }

  const graft_operator* description_;
  const graft_create_request* request_;
};

}  // namespace graft

#endif  // GRAFT_KIT_OPERATOR_H_
