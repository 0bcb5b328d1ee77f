// The exception that carries a GRAFT_* code to the edge, and what turns exceptions into codes
// there.
#ifndef GRAFT_KIT_ERROR_H_
#define GRAFT_KIT_ERROR_H_

#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>

#include "graft_plugin.h"

namespace graft {

// Thrown by kernels and by the kit; ends as the function's code and message.
class Error : public std::runtime_error {
 public:
  Error(int32_t code, const std::string& text) : std::runtime_error(text), code_(code) {}
  int32_t code() const { return code_; }

 private:
  int32_t code_;
};

template <typename... Parts>
std::string Text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// Throws Error when a request contradicts what the operator accepts. The parts, joined, are the
// text; they are joined only on failure.
template <typename... Parts>
void Require(bool holds, const Parts&... parts) {
  if (!holds) throw Error(GRAFT_ERROR_INVALID_ARGUMENT, Text(parts...));
}

// Throws Error for a legal request that this build does not support.
template <typename... Parts>
[[noreturn]] void Unsupported(const Parts&... parts) {
  throw Error(GRAFT_ERROR_UNSUPPORTED, Text(parts...));
}

inline void Put(graft_message* message, const char* text) noexcept {
  if (message == nullptr || message->text == nullptr || message->capacity == 0) return;
  const uint64_t length = std::strlen(text);
  const uint64_t kept = length < message->capacity - 1 ? length : message->capacity - 1;
  std::memcpy(message->text, text, kept);
  message->text[kept] = 0;
}

// Runs a function body and turns whatever it throws into a code and a text: exceptions stop here.
template <typename Body>
int32_t Guard(graft_message* message, Body&& body) noexcept {
  try {
    return body();
  } catch (const Error& error) {
    Put(message, error.what());
    return error.code();
  } catch (const std::bad_alloc&) {
    Put(message, "out of memory");
    return GRAFT_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    Put(message, error.what());
    return GRAFT_ERROR_INTERNAL;
  } catch (...) {
    Put(message, "unknown C++ exception");
    return GRAFT_ERROR_INTERNAL;
  }
}

}  // namespace graft

#endif  // GRAFT_KIT_ERROR_H_
