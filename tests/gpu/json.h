// Text as JSON writes it.
#ifndef GRAFT_TESTS_GPU_JSON_H_
#define GRAFT_TESTS_GPU_JSON_H_

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace graft {
namespace gpu {

inline std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Nine digits; null for what JSON has no number for.
inline std::string Number(double x) {
  if (!std::isfinite(x)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", x);
  return text;
}

inline std::string Numbers(const std::vector<double>& list) {
  std::string out = "[";
  for (const double x : list) out += (out.size() > 1 ? ", " : "") + Number(x);
  return out + ']';
}

}  // namespace gpu
}  // namespace graft

#endif  // GRAFT_TESTS_GPU_JSON_H_
