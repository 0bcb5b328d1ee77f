// Cases made from cases: valid ones with other sizes and contents, and such as a hostile model
// would hold.
#ifndef GRAFT_TESTS_DRIVEN_MUTATE_H_
#define GRAFT_TESTS_DRIVEN_MUTATE_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "case.h"
#include "graft_plugin.h"
#include "session.h"

namespace graft::driven {

class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // From 0 to count - 1.
  int64_t Below(int64_t count) {
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(count));
  }
  bool Chance(int percent) { return Below(100) < percent; }
  template <typename List>
  auto& Of(List& list) {
    return list[static_cast<size_t>(Below(static_cast<int64_t>(list.size())))];
  }

 private:
  uint64_t state_;
};

class Mutator {
 public:
  Mutator(uint64_t seed, const Runtime& runtime) : dice_(seed), runtime_(runtime) {}

  // A case that others are made from.
  void Add(const Case& c);
  // The next case. Several follow one another with one model.
  Case Next();
  // Adds a case whose outcome is like none before; reports whether it did.
  bool Learn(const Case& c, const Outcome& outcome);

 private:
  int64_t Extreme(const Case& c);
  double ExtremeFloat();
  Case Model();
  void ChangeSize(Case* c);
  void ChangeAttribute(Case* c);
  void ChangeType(Case* c);
  void ChangePresence(Case* c);
  void ChangeStated(Case* c);
  void ChangeDims(const Case& c, Input* in);
  void ChangeContent(const Case& c, Input* in);
  void Feed(Case* c);
  static void Bound(Case* c);

  Dice dice_;
  const Runtime& runtime_;
  std::vector<std::vector<Case>> pools_;  // by operator
  Case model_;
  int64_t left_ = 0;
  std::set<std::string> seen_;
};

}  // namespace graft::driven

#endif  // GRAFT_TESTS_DRIVEN_MUTATE_H_
