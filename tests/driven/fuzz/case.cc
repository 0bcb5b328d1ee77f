#include "case.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>

namespace graft::driven {
namespace {

struct Named {
  Type type;
  const char* name;
  size_t size;
};

constexpr Named kTypes[] = {
    {Type::kFloat32, "float32", 4}, {Type::kFloat64, "float64", 8},
    {Type::kFloat16, "float16", 2}, {Type::kBFloat16, "bfloat16", 2},
    {Type::kBool, "bool", 1},       {Type::kInt8, "int8", 1},
    {Type::kInt16, "int16", 2},     {Type::kInt32, "int32", 4},
    {Type::kInt64, "int64", 8},     {Type::kUint8, "uint8", 1},
    {Type::kUint16, "uint16", 2},   {Type::kUint32, "uint32", 4},
    {Type::kUint64, "uint64", 8},
};

const Named& Of(Type type) {
  for (const Named& n : kTypes) {
    if (n.type == type) return n;
  }
  throw std::logic_error("no such type");
}

// float32 to the nearest float16, ties towards zero.
uint16_t Half(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (std::isnan(value)) return sign | 0x7E00;
  const float size = std::fabs(value);
  if (size >= 65520.0f) return sign | 0x7C00;
  if (size < 6.103515625e-05f) return sign | static_cast<uint16_t>(size * 16777216.0f);
  return sign | static_cast<uint16_t>(((bits & 0x7FFFFFFF) >> 13) - (112 << 10));
}

void Put(Type type, const Number& n, char* to) {
  const float narrow = static_cast<float>(n.f);
  switch (type) {
    case Type::kFloat32:
      std::memcpy(to, &narrow, 4);
      break;
    case Type::kFloat64:
      std::memcpy(to, &n.f, 8);
      break;
    case Type::kFloat16: {
      const uint16_t half = Half(narrow);
      std::memcpy(to, &half, 2);
      break;
    }
    case Type::kBFloat16:
      std::memcpy(to, reinterpret_cast<const char*>(&narrow) + 2, 2);
      break;
    default:  // little-endian
      std::memcpy(to, &n.i, SizeOf(type));
  }
}

std::string Joined(const std::vector<int64_t>& dims) {
  if (dims.empty()) return "-";
  std::string out;
  for (const int64_t d : dims) {
    if (!out.empty()) out += ',';
    out += d == -1 ? "?" : std::to_string(d);
  }
  return out;
}

std::vector<int64_t> Dims(const std::string& text) {
  std::vector<int64_t> dims;
  if (text == "-") return dims;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    dims.push_back(part == "?" ? -1 : std::strtoll(part.c_str(), nullptr, 10));
  }
  return dims;
}

std::string Printed(const Number& n, bool is_float) {
  if (!is_float) return std::to_string(n.i);
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", n.f);
  return text;
}

Number Read(const std::string& text, bool is_float) {
  Number n;
  if (is_float) {
    n.f = std::strtod(text.c_str(), nullptr);
  } else {
    n.i = std::strtoll(text.c_str(), nullptr, 10);
  }
  return n;
}

constexpr const char* kKinds[] = {"int", "float", "string", "ints", "floats"};

std::string Head(const Input& in) {
  std::string out = (in.constant ? "constant " : "input ") + in.name + ' ' + NameOf(in.type);
  return out;
}

void ReadInput(std::istringstream& words, Input* in) {
  std::string type, dims, word;
  words >> in->name >> type >> dims;
  bool known = false;
  for (const Named& n : kTypes) {
    if (type == n.name) in->type = n.type, known = true;
  }
  if (!known) throw std::runtime_error("no type " + type);
  in->dims = Dims(dims);
  const bool is_float = IsFloat(in->type);
  bool setting = false, listing = false;
  while (words >> word) {
    if (word == "random") {
      words >> in->seed >> in->low >> in->high;
    } else if (word == "declared") {
      words >> word;
      in->stated = true;
      in->declared = Dims(word);
    } else if (word == "values") {
      listing = true;
    } else if (word == "set") {
      setting = true;
    } else if (setting) {
      const int64_t at = std::strtoll(word.c_str(), nullptr, 10);
      words >> word;
      in->sets.emplace_back(at, Read(word, is_float));
    } else if (listing) {
      in->values.push_back(Read(word, is_float));
    } else {
      throw std::runtime_error("found " + word);
    }
  }
}

}  // namespace

size_t SizeOf(Type type) { return Of(type).size; }
const char* NameOf(Type type) { return Of(type).name; }
bool IsFloat(Type type) {
  return type == Type::kFloat32 || type == Type::kFloat64 || type == Type::kFloat16 ||
         type == Type::kBFloat16;
}

int64_t Input::elements() const {
  int64_t count = 1;
  bool empty = false;
  for (const int64_t d : dims) {
    if (d < 0) return -1;
    empty |= d == 0;
  }
  if (empty) return 0;
  for (const int64_t d : dims) {
    if (__builtin_mul_overflow(count, d, &count)) return -1;
  }
  return count;
}

std::string Input::Bytes() const {
  const int64_t count = elements();
  const size_t size = SizeOf(type);
  std::string out(static_cast<size_t>(count) * size, 0);
  uint64_t state = seed * 0x9E3779B97F4A7C15 + 1;
  for (int64_t k = 0; k < count; ++k) {
    Number n;
    if (!values.empty()) {
      n = values[static_cast<size_t>(k) % values.size()];
    } else {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      n.f = low + (high - low) * static_cast<double>(state >> 11) / 9007199254740992.0;
      n.i = type == Type::kBool ? static_cast<int64_t>(state & 1)
                                : static_cast<int64_t>(std::floor(n.f + 0.5));
    }
    Put(type, n, &out[static_cast<size_t>(k) * size]);
  }
  for (const auto& [at, n] : sets) {
    if (at >= 0 && at < count) Put(type, n, &out[static_cast<size_t>(at) * size]);
  }
  if (type == Type::kBool) {
    for (char& c : out) c = c != 0;
  }
  return out;
}

Input* Case::Find(const std::string& name) {
  for (Input& in : inputs) {
    if (in.name == name) return &in;
  }
  return nullptr;
}

std::string Case::Key() const {
  std::string out = "operator " + op + '\n';
  for (const Attribute& a : attributes) {
    out += std::string(kKinds[a.kind]) + ' ' + a.name;
    switch (a.kind) {
      case Attribute::kString:
        out += ' ' + a.text;
        break;
      case Attribute::kInt:
      case Attribute::kFloat:
        out += ' ' + Printed(a.number, a.kind == Attribute::kFloat);
        break;
      default:
        for (const Number& n : a.list) out += ' ' + Printed(n, a.kind == Attribute::kFloats);
    }
    out += '\n';
  }
  for (const Input& in : inputs) {
    out += Head(in) + (in.stated ? " declared " + Joined(in.declared) : "") + '\n';
    if (in.constant) out += Joined(in.dims) + std::to_string(in.seed) + in.Bytes();
  }
  for (const std::string& name : outputs) out += "output " + name + '\n';
  return out;
}

std::string Case::Text() const {
  Case head = *this;
  head.inputs.clear();
  head.outputs.clear();
  std::string out = head.Key();
  for (const Input& in : inputs) {
    const bool is_float = IsFloat(in.type);
    out += Head(in) + ' ' + Joined(in.dims);
    if (in.stated) out += " declared " + Joined(in.declared);
    if (in.values.empty()) {
      char text[100];
      std::snprintf(text, sizeof text, " random %llu %.9g %.9g",
                    static_cast<unsigned long long>(in.seed), in.low, in.high);
      out += text;
    } else {
      out += " values";
      for (const Number& n : in.values) out += ' ' + Printed(n, is_float);
    }
    if (!in.sets.empty()) out += " set";
    for (const auto& [at, n] : in.sets) {
      out += ' ' + std::to_string(at) + ' ' + Printed(n, is_float);
    }
    out += '\n';
  }
  for (const std::string& name : outputs) out += "output " + name + '\n';
  return out;
}

Case Parse(const std::string& text) {
  Case c;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string what, name, word;
    words >> what;
    try {
      if (what == "operator") {
        words >> c.op;
      } else if (what == "output") {
        words >> name;
        c.outputs.push_back(name);
      } else if (what == "input" || what == "constant") {
        Input in;
        in.constant = what == "constant";
        ReadInput(words, &in);
        c.inputs.push_back(in);
      } else {
        Attribute a;
        int kind = 0;
        while (kind < 5 && what != kKinds[kind]) ++kind;
        if (kind == 5) throw std::runtime_error("found " + what);
        a.kind = static_cast<Attribute::Kind>(kind);
        words >> a.name;
        const bool is_float = a.kind == Attribute::kFloat || a.kind == Attribute::kFloats;
        while (words >> word) {
          if (a.kind == Attribute::kString) {
            a.text = word;
          } else {
            a.number = Read(word, is_float);
            a.list.push_back(a.number);
          }
        }
        c.attributes.push_back(a);
      }
    } catch (const std::runtime_error& e) {
      throw std::runtime_error(line.substr(0, 200) + ": " + e.what());
    }
  }
  if (c.op.empty()) throw std::runtime_error("no operator is named");
  return c;
}

}  // namespace graft::driven
