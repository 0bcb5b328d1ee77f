#include "mutate.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <limits>
#include <map>

namespace graft::driven {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kFeeds = 6;           // runs of one model
constexpr int64_t kElements = 1 << 18;  // of one input
constexpr size_t kValues = 1024;        // of one list that a case writes out
constexpr size_t kPool = 1000;          // cases of an operator

constexpr int64_t kCorners[] = {0,
                                1,
                                2,
                                3,
                                4,
                                5,
                                7,
                                8,
                                9,
                                15,
                                16,
                                17,
                                31,
                                32,
                                33,
                                63,
                                64,
                                65,
                                127,
                                128,
                                129,
                                255,
                                256,
                                1024,
                                4095,
                                4096,
                                65535,
                                65536,
                                int64_t{1} << 30,
                                (int64_t{1} << 31) - 1,
                                int64_t{1} << 31,
                                (int64_t{1} << 32) - 1,
                                int64_t{1} << 32,
                                (int64_t{1} << 32) + 1,
                                int64_t{1} << 40,
                                int64_t{1} << 60,
                                int64_t{1} << 61,
                                int64_t{1} << 62,
                                kMax - 1,
                                kMax};

// Every size that a case names: dimensions, and attributes that are small numbers.
std::vector<int64_t> Sizes(const Case& c) {
  std::vector<int64_t> sizes;
  for (const Input& in : c.inputs) {
    for (const int64_t d : in.dims) sizes.push_back(d);
  }
  for (const Attribute& a : c.attributes) {
    if (a.kind == Attribute::kInt && a.number.i > 0 && a.number.i < 4096) {
      sizes.push_back(a.number.i);
    }
  }
  if (sizes.empty()) sizes.push_back(1);
  return sizes;
}

const graft_parameter* ParameterOf(const graft_operator* op, const std::string& name) {
  for (uint32_t i = 0; i < op->num_inputs; ++i) {
    const std::string stem = op->inputs[i]->name;
    if (name == stem || ((op->inputs[i]->flags & GRAFT_PARAMETER_VARIADIC) != 0 &&
                         name.compare(0, stem.size(), stem) == 0)) {
      return op->inputs[i];
    }
  }
  return nullptr;
}

Type TypeFrom(const graft_data_type& t) {
  switch (t.code) {
    case GRAFT_TYPE_FLOAT:
      return t.bits == 16 ? Type::kFloat16 : t.bits == 32 ? Type::kFloat32 : Type::kFloat64;
    case GRAFT_TYPE_BFLOAT:
      return Type::kBFloat16;
    case GRAFT_TYPE_BOOL:
      return Type::kBool;
    case GRAFT_TYPE_INT:
      return t.bits == 8    ? Type::kInt8
             : t.bits == 16 ? Type::kInt16
             : t.bits == 32 ? Type::kInt32
                            : Type::kInt64;
    default:
      return t.bits == 8    ? Type::kUint8
             : t.bits == 16 ? Type::kUint16
             : t.bits == 32 ? Type::kUint32
                            : Type::kUint64;
  }
}

// A text without its numbers.
std::string Form(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0 && c != '-') {
      out += c;
    } else if (out.empty() || out.back() != '#') {
      out += '#';
    }
  }
  return out;
}

int Log2(int64_t x) {
  int n = 0;
  for (; x > 0; x >>= 1) ++n;
  return n;
}

}  // namespace

uint64_t Dice::Next() {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  return z ^ z >> 31;
}

// A number that sums and products of sizes may not hold: a corner, a size of the case and its
// neighbours, or what wraps when it is multiplied by one or added to one.
int64_t Mutator::Extreme(const Case& c) {
  const std::vector<int64_t> sizes = Sizes(c);
  const int64_t size = std::max<int64_t>(1, dice_.Of(sizes));
  switch (dice_.Below(8)) {
    case 0:
    case 1:
      return kCorners[dice_.Below(sizeof kCorners / sizeof *kCorners)];
    case 2:
      return -kCorners[dice_.Below(sizeof kCorners / sizeof *kCorners)];
    case 3:
      return static_cast<int64_t>(static_cast<uint64_t>(size) + dice_.Next() % 5 - 2);
    case 4:
      return kMax - dice_.Below(dice_.Chance(50) ? 64 : 1 << 16);
    case 5:
      return kMin + dice_.Below(1 << 10);
    case 6: {  // times size: about 2^63 or 2^64
      const auto whole = static_cast<uint64_t>(dice_.Chance(50) ? kMax : -1);
      const int64_t factor =
          static_cast<int64_t>(whole / static_cast<uint64_t>(size) / (dice_.Chance(50) ? 1 : 4));
      return static_cast<int64_t>(static_cast<uint64_t>(factor) + dice_.Next() % 5 - 2);
    }
    default:
      return static_cast<int64_t>(static_cast<uint64_t>(size) * (1 + dice_.Next() % 4));
  }
}

double Mutator::ExtremeFloat() {
  constexpr double kList[] = {0,
                              -0.0,
                              1,
                              -1,
                              1e-45,
                              1e-38,
                              3.4e38,
                              -3.4e38,
                              65504,
                              1e5,
                              1e30,
                              -1e30,
                              0.5,
                              1e308,
                              -1e-7,
                              std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN()};
  return kList[dice_.Below(sizeof kList / sizeof *kList)];
}

// One size becomes another wherever it stands, or nearly.
void Mutator::ChangeSize(Case* c) {
  const std::vector<int64_t> sizes = Sizes(*c);
  const int64_t from = dice_.Of(sizes);
  const int64_t to = dice_.Chance(70) ? dice_.Below(40) : kCorners[dice_.Below(24)];
  const bool everywhere = dice_.Chance(80);
  for (Input& in : c->inputs) {
    for (int64_t& d : in.dims) {
      if (d == from && (everywhere || dice_.Chance(50))) d = to;
    }
  }
  for (Attribute& a : c->attributes) {
    if (a.kind == Attribute::kInt && a.number.i == from && (everywhere || dice_.Chance(50))) {
      a.number.i = to;
    }
  }
}

void Mutator::ChangeAttribute(Case* c) {
  const graft_operator* op = runtime_.Find(c->op);
  if (op->num_attributes == 0) return;
  const graft_attribute* chosen = op->attributes[dice_.Below(op->num_attributes)];
  auto at = std::find_if(c->attributes.begin(), c->attributes.end(),
                         [&](const Attribute& a) { return a.name == chosen->name; });
  if (at != c->attributes.end() && dice_.Chance(10)) {
    c->attributes.erase(at);
    return;
  }
  if (at == c->attributes.end()) {
    Attribute fresh;
    fresh.name = chosen->name;
    c->attributes.push_back(fresh);
    at = c->attributes.end() - 1;
  }
  at->kind =
      static_cast<Attribute::Kind>(chosen->kind == GRAFT_ATTRIBUTE_INT      ? Attribute::kInt
                                   : chosen->kind == GRAFT_ATTRIBUTE_FLOAT  ? Attribute::kFloat
                                   : chosen->kind == GRAFT_ATTRIBUTE_STRING ? Attribute::kString
                                   : chosen->kind == GRAFT_ATTRIBUTE_INTS   ? Attribute::kInts
                                                                            : Attribute::kFloats);
  if (dice_.Chance(2)) at->kind = static_cast<Attribute::Kind>(dice_.Below(5));
  switch (at->kind) {
    case Attribute::kInt:
      at->number.i = dice_.Chance(30) ? dice_.Below(5) : Extreme(*c);
      return;
    case Attribute::kFloat:
      at->number.f = ExtremeFloat();
      return;
    case Attribute::kString: {
      static const std::vector<std::string> words = {
          "bhsd", "bshd", "bhds", "bsd", "float32", "float16", "bfloat16", "none", "tanh",
          "gelu", "relu", "silu", "erf", "self",    "cross",   "",         "x"};
      at->text = dice_.Of(words);
      return;
    }
    default:
      at->list.resize(static_cast<size_t>(dice_.Below(6)));
      for (Number& n : at->list) n = {Extreme(*c), ExtremeFloat()};
  }
}

// Another type that the operator takes, mostly in all inputs that share it; now and then one that
// it does not.
void Mutator::ChangeType(Case* c) {
  if (c->inputs.empty()) return;
  const graft_operator* op = runtime_.Find(c->op);
  Input& in = dice_.Of(c->inputs);
  const graft_parameter* p = ParameterOf(op, in.name);
  if (p == nullptr) return;
  const Type to = dice_.Chance(90) ? TypeFrom(p->types[dice_.Below(p->num_types)]) : Type::kInt32;
  const bool all = dice_.Chance(90);
  for (Input& other : c->inputs) {
    const graft_parameter* q = ParameterOf(op, other.name);
    if (&other != &in &&
        (q == nullptr || !all || p->type_variable < 0 || q->type_variable != p->type_variable)) {
      continue;
    }
    if (IsFloat(other.type) != IsFloat(to)) other.values.clear(), other.sets.clear();
    other.type = to;
  }
}

// An input or output comes or goes, or an input becomes a constant.
void Mutator::ChangePresence(Case* c) {
  const graft_operator* op = runtime_.Find(c->op);
  if (dice_.Chance(20) && op->num_outputs > 0) {
    const std::string name = op->outputs[dice_.Below(op->num_outputs)]->name;
    const auto at = std::find(c->outputs.begin(), c->outputs.end(), name);
    if (at == c->outputs.end()) {
      c->outputs.push_back(name);
    } else if (c->outputs.size() > 1) {
      c->outputs.erase(at);
    }
    return;
  }
  const graft_parameter* p = op->inputs[dice_.Below(op->num_inputs)];
  Input* in = c->Find(p->name);
  if (in == nullptr) {
    if ((p->flags & GRAFT_PARAMETER_VARIADIC) != 0 || c->inputs.empty()) return;
    Input fresh = dice_.Of(c->inputs);
    fresh.name = p->name;
    const Type type = TypeFrom(p->types[dice_.Below(p->num_types)]);
    if (IsFloat(type) != IsFloat(fresh.type)) fresh.values.clear(), fresh.sets.clear();
    fresh.type = type;
    fresh.constant = false;
    if (!IsFloat(type)) fresh.low = 0, fresh.high = 8;
    c->inputs.push_back(fresh);
    // In the operator's order, which is that of the node.
  } else if (dice_.Chance(30)) {
    in->constant = !in->constant;
  } else if (c->inputs.size() > 1) {
    c->inputs.erase(c->inputs.begin() + (in - c->inputs.data()));
  }
}

void Mutator::ChangeStated(Case* c) {
  for (Input& in : c->inputs) {
    in.stated = dice_.Chance(70);
    in.declared = in.dims;
    for (int64_t& d : in.declared) {
      if (dice_.Chance(30)) d = -1;
      if (dice_.Chance(8)) d = Extreme(*c) & kMax;
    }
    if (dice_.Chance(5)) in.declared.resize(static_cast<size_t>(dice_.Below(8)), -1);
  }
}

void Mutator::ChangeDims(const Case& c, Input* in) {
  std::vector<int64_t>& dims = in->dims;
  const int64_t at = dims.empty() ? 0 : dice_.Below(static_cast<int64_t>(dims.size()));
  switch (dice_.Below(9)) {
    case 0:
      dims.insert(dims.begin() + at, dice_.Below(4));
      break;
    case 1:
      if (!dims.empty()) dims.erase(dims.begin() + at);
      break;
    case 2:
      if (!dims.empty()) std::swap(dims.front(), dims[static_cast<size_t>(at)]);
      break;
    case 3:
      dims.assign(static_cast<size_t>(dice_.Below(10)), 1);
      break;
    case 4:  // empty, beside a size that no memory could have
      if (!dims.empty()) dims[static_cast<size_t>(at)] = 0;
      if (dims.size() > 1 && dice_.Chance(40)) {
        dims[static_cast<size_t>(at) == 0 ? 1 : 0] = Extreme(c) & kMax;
      }
      break;
    default:
      if (!dims.empty()) {
        int64_t& d = dims[static_cast<size_t>(at)];
        d = dice_.Chance(50) ? std::max<int64_t>(0, std::min(d, kElements) + dice_.Below(5) - 2)
                             : dice_.Below(70);
      }
  }
}

void Mutator::ChangeContent(const Case& c, Input* in) {
  const int64_t count = in->elements();
  if (count <= 0 || count > kElements) return;
  if (IsFloat(in->type)) {
    in->seed = dice_.Next() % 1000;
    if (dice_.Chance(20)) in->low = -100, in->high = 100;
    for (int64_t k = dice_.Below(4); k > 0; --k) {
      in->sets.emplace_back(dice_.Below(count), Number{0, ExtremeFloat()});
    }
    if (in->sets.size() > 64) in->sets.clear();
    return;
  }
  const std::string before = in->Bytes();
  const size_t size = SizeOf(in->type);
  for (int64_t k = 1 + dice_.Below(3); k > 0; --k) {
    const int64_t at = dice_.Below(count);
    const int64_t other = dice_.Below(count);
    Number n;
    std::memcpy(&n.i, &before[static_cast<size_t>(other) * size], size);
    switch (dice_.Below(6)) {
      case 0:
        n.i = Extreme(c);
        break;
      case 1:
        std::memcpy(&n.i, &before[static_cast<size_t>(at) * size], size);
        n.i = static_cast<int64_t>(static_cast<uint64_t>(n.i) + dice_.Next() % 5 - 2);
        break;
      case 2:
        n.i = dice_.Below(40);
        break;
      case 3:
        n.i = -1;
        break;
      default:
        break;  // that of another element
    }
    in->sets.emplace_back(at, n);
  }
  if (in->sets.size() > 64) in->sets.erase(in->sets.begin(), in->sets.end() - 32);
}

// Sizes that there is memory for.
void Mutator::Bound(Case* c) {
  for (Input& in : c->inputs) {
    while (true) {
      const int64_t count = in.elements();
      if (count >= 0 && count <= kElements) break;
      int64_t& largest = *std::max_element(in.dims.begin(), in.dims.end());
      for (int64_t& d : in.dims) d = std::max<int64_t>(d, 0);
      largest = count < 0 ? 1 : largest / 2;
    }
    if (in.values.size() > kValues) in.values.resize(kValues);
  }
}

void Mutator::Add(const Case& c) {
  for (std::vector<Case>& pool : pools_) {
    if (pool.front().op == c.op) {
      if (pool.size() < kPool) pool.push_back(c);
      return;
    }
  }
  pools_.push_back({c});
}

Case Mutator::Model() {
  const std::vector<Case>& pool = dice_.Of(pools_);
  // What was added first is what plugins hold themselves to.
  const auto first = std::min<int64_t>(8, static_cast<int64_t>(pool.size()));
  Case c = dice_.Chance(50) ? dice_.Of(pool) : pool[static_cast<size_t>(dice_.Below(first))];
  for (int64_t k = dice_.Below(4); k > 0; --k) {
    switch (dice_.Below(10)) {
      case 0:
      case 1:
      case 2:
        ChangeAttribute(&c);
        break;
      case 3:
      case 4:
      case 5:
        ChangeSize(&c);
        break;
      case 6:
        ChangeType(&c);
        break;
      case 7:
        ChangePresence(&c);
        break;
      case 8:
        ChangeStated(&c);
        break;
      default:
        if (!c.inputs.empty()) ChangeDims(c, &dice_.Of(c.inputs));
    }
  }
  return c;
}

void Mutator::Feed(Case* c) {
  for (int64_t k = dice_.Below(4); k > 0 && !c->inputs.empty(); --k) {
    Input& in = dice_.Of(c->inputs);
    if (in.constant) continue;
    if (dice_.Chance(25)) {
      ChangeDims(*c, &in);
    } else {
      ChangeContent(*c, &in);
    }
  }
}

Case Mutator::Next() {
  if (left_ == 0) {
    model_ = Model();
    Bound(&model_);
    left_ = kFeeds;
  }
  --left_;
  Case c = model_;
  Feed(&c);
  Bound(&c);
  return c;
}

bool Mutator::Learn(const Case& c, const Outcome& outcome) {
  std::string form = c.op + ' ' + std::to_string(outcome.stage) + ' ' + Form(outcome.message);
  if (outcome.stage == Outcome::kDone) {
    for (const Attribute& a : c.attributes) {
      form += a.name + (a.kind == Attribute::kInt ? std::to_string(Log2(a.number.i)) : a.text);
    }
    for (const Input& in : c.inputs) {
      form += ' ' + in.name + NameOf(in.type) + std::to_string(in.dims.size()) +
              (in.constant ? "c" : "");
    }
  } else if (outcome.stage == Outcome::kLoad) {
    left_ = 0;  // no run would tell more
  }
  if (!seen_.insert(form).second) return false;
  Add(c);
  return true;
}

}  // namespace graft::driven
