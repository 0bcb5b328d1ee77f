#include "weights.h"

namespace graft {

// A part of an encoded message, read from its front.
struct Externals::View {
  const unsigned char *at, *end;

  bool Varint(uint64_t* n) {
    *n = 0;
    for (int shift = 0; shift < 64 && at < end; shift += 7) {
      const unsigned char b = *at++;
      *n |= static_cast<uint64_t>(b & 0x7f) << shift;
      if (b < 0x80) return true;
    }
    return false;
  }

  // A field's number, with its value: n of a number, part of bytes.
  bool Field(int* number, int* wire, uint64_t* n, View* part) {
    uint64_t tag;
    if (!Varint(&tag) || tag >> 3 == 0 || tag >> 3 > 536870911) return false;
    *number = static_cast<int>(tag >> 3);
    *wire = static_cast<int>(tag & 7);
    *part = {nullptr, nullptr};
    *n = 0;
    size_t skip;
    switch (*wire) {
      case 0:
        return Varint(n);
      case 1:
        skip = 8;
        break;
      case 2:
        if (!Varint(n) || *n > static_cast<uint64_t>(end - at)) return false;
        *part = {at, at + *n};
        skip = static_cast<size_t>(*n);
        break;
      case 5:
        skip = 4;
        break;
      default:
        return false;
    }
    if (skip > static_cast<size_t>(end - at)) return false;
    at += skip;
    return true;
  }

  bool Is(const char* s) const {
    const size_t n = strlen(s);
    return static_cast<size_t>(end - at) == n && memcmp(at, s, n) == 0;
  }

  // The number that the bytes are in decimal.
  bool Decimal(uint64_t* n) const {
    *n = 0;
    for (const unsigned char* p = at; p < end; ++p) {
      if (*p < '0' || *p > '9' || *n > (UINT64_MAX - 9) / 10) return false;
      *n = *n * 10 + (*p - '0');
    }
    return at < end;
  }
};

namespace {

// Fields of onnx.proto.
constexpr int kModelGraph = 7;
constexpr int kGraphNode = 1, kGraphInitializer = 5;
constexpr int kNodeAttribute = 5;
constexpr int kAttributeTensor = 5, kAttributeGraph = 6, kAttributeTensors = 10,
              kAttributeGraphs = 11;
constexpr int kTensorDims = 1, kTensorType = 2, kTensorName = 8, kTensorExternal = 13,
              kTensorPlace = 14;
constexpr int kEntryKey = 1, kEntryValue = 2;
constexpr int kMostDepth = 64;
constexpr size_t kMostRank = 64;

}  // namespace

bool Externals::Read(const unsigned char* model, size_t size) {
  View v = {model, model + size};
  int number, wire;
  uint64_t n;
  View part;
  bool any = false;
  while (v.at < v.end) {
    if (!v.Field(&number, &wire, &n, &part)) return false;
    if (number == kModelGraph && wire == 2) {
      if (any || !Graph(part, 0)) return false;
      any = true;
    }
  }
  for (size_t i = 0; i < list_.size(); ++i) list_[i].dims = dims_.data() + list_[i].first_dim;
  return any;
}

bool Externals::Graph(View v, int depth) {
  if (depth > kMostDepth) return false;
  int number, wire;
  uint64_t n;
  View part;
  while (v.at < v.end) {
    if (!v.Field(&number, &wire, &n, &part)) return false;
    if (wire != 2) continue;
    if (number == kGraphNode && !Node(part, depth)) return false;
    if (number == kGraphInitializer && !Tensor(part, depth)) return false;
  }
  return true;
}

bool Externals::Node(View v, int depth) {
  int number, wire;
  uint64_t n;
  View attribute, part;
  while (v.at < v.end) {
    if (!v.Field(&number, &wire, &n, &attribute)) return false;
    if (number != kNodeAttribute || wire != 2) continue;
    while (attribute.at < attribute.end) {
      if (!attribute.Field(&number, &wire, &n, &part)) return false;
      if (wire != 2) continue;
      if ((number == kAttributeGraph || number == kAttributeGraphs) && !Graph(part, depth + 1)) {
        return false;
      }
      if ((number == kAttributeTensor || number == kAttributeTensors) && !Tensor(part, depth + 1)) {
        return false;
      }
    }
  }
  return true;
}

// A tensor at depth 0 is an initializer of the main graph; others are nested.
bool Externals::Tensor(View v, int depth) {
  External t = {};
  t.first_dim = dims_.size();
  bool external = false;
  int number, wire;
  uint64_t n;
  View part;
  while (v.at < v.end) {
    if (!v.Field(&number, &wire, &n, &part)) return false;
    switch (number) {
      case kTensorDims: {
        if (wire == 0) {
          if (!dims_.Add(static_cast<int64_t>(n))) return false;
        } else if (wire == 2) {
          while (part.at < part.end) {
            if (!part.Varint(&n) || !dims_.Add(static_cast<int64_t>(n))) return false;
          }
        }
        if (dims_.size() - t.first_dim > kMostRank) return false;
        break;
      }
      case kTensorType:
        t.type = static_cast<int>(n);
        break;
      case kTensorPlace:
        external = n == 1;
        break;
      case kTensorName:
        t.name = reinterpret_cast<const char*>(part.at);
        t.name_size = static_cast<size_t>(part.end - part.at);
        break;
      case kTensorExternal: {
        View key = {nullptr, nullptr}, value = {nullptr, nullptr}, inner;
        while (part.at < part.end) {
          if (!part.Field(&number, &wire, &n, &inner)) return false;
          if (number == kEntryKey && wire == 2) key = inner;
          if (number == kEntryValue && wire == 2) value = inner;
        }
        if (key.Is("location")) {
          t.location = reinterpret_cast<const char*>(value.at);
          t.location_size = static_cast<size_t>(value.end - value.at);
        } else if (key.Is("offset")) {
          if (!value.Decimal(&t.offset)) return false;
        } else if (key.Is("length")) {
          if (!value.Decimal(&t.length)) return false;
        }
        break;
      }
      default:
        break;
    }
  }
  t.rank = dims_.size() - t.first_dim;
  if (!external) return true;
  if (t.location_size == 0 || (depth == 0 && t.name_size == 0)) return false;
  return (depth == 0 ? list_ : nested_).Add(t);
}

}  // namespace graft
