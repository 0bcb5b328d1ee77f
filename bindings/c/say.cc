#include "say.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

namespace graft {
namespace {

// Adds text as a terminal may have it: control characters, and those that turn or hide what is
// beside them, as \x and two digits.
void Printable(const Text& text, Text* out) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.c());
  const unsigned char* end = p + text.size();
  const auto escape = [out](unsigned char b) {
    const char digits[] = "0123456789abcdef";
    const char escaped[] = {'\\', 'x', digits[b >> 4], digits[b & 15]};
    out->Add(escaped, sizeof escaped);
  };
  while (p < end) {
    size_t n = *p < 0x80 ? 1 : *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf5 ? 4 : 0;
    if (n > static_cast<size_t>(end - p)) n = 0;
    for (size_t i = 1; i < n; ++i) {
      if ((p[i] & 0xc0) != 0x80) n = 0;
    }
    const bool control = n == 1 && (*p < 0x20 || *p == 0x7f);
    const bool high = n == 2 && *p == 0xc2 && p[1] < 0xa0;
    const bool turns = n == 3 && *p == 0xe2 && (p[1] == 0x80 || p[1] == 0x81);
    const bool mark = n == 3 && *p == 0xef && p[1] == 0xbb;
    if (n == 0 || control || high || turns || mark) {
      n = n == 0 ? 1 : n;
      for (size_t i = 0; i < n; ++i) escape(p[i]);
    } else {
      out->Add(p, n);
    }
    p += n;
  }
}

}  // namespace

void Say(const Text& text) {
  Text line("graft: ");
  Printable(text, &line);
  line.Add("\n");
  const int before = errno;
  // A reader that is gone would end the program.
  sigset_t pipe, mask, pending;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &pipe, &mask);
  // One call, so that lines of several threads stay apart.
  const bool gone = write(STDERR_FILENO, line.c(), line.size()) < 0 && errno == EPIPE;
  if (gone && sigismember(&pending, SIGPIPE) == 0) {
    const timespec none = {};
    sigtimedwait(&pipe, nullptr, &none);
  }
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  errno = before;
}

void Warn(Cause cause, const Text& text) {
  static uint32_t said = 0;
  static_assert(static_cast<int>(Cause::kCount) <= 32, "a bit for each cause");
  const uint32_t bit = 1U << static_cast<int>(cause);
  if ((__atomic_fetch_or(&said, bit, __ATOMIC_RELAXED) & bit) == 0) {
    Say(text);
  } else {
    Tell(text);
  }
}

void Tell(const Text& text) {
  const char* verbose = getenv("GRAFT_VERBOSE");
  if (verbose != nullptr && strcmp(verbose, "1") == 0) Say(text);
}

}  // namespace graft
