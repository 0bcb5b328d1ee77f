#include "ask.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char** environ;

namespace graft {
namespace {

// What the process between writes for this one.
struct Result {
  enum Kind : int { kNone, kExit, kSignal, kNotRun, kDeadline } kind;
  int value;
};

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
constexpr size_t kMostText = 2000;

int64_t Now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1000 + t.tv_nsec / 1000000;
}

// A process that shares nothing with this one. signal is what its end sends. Nothing of the C
// library runs in between, so that handlers of fork, which are the program's, do not either.
pid_t Clone(int signal) {
  return static_cast<pid_t>(syscall(SYS_clone, static_cast<long>(signal), 0L, 0L, 0L, 0L));
}

void WriteResult(int fd, Result r) {
  const ssize_t ignored = write(fd, &r, sizeof r);
  static_cast<void>(ignored);
}

// Closes what is open from one descriptor to another, both included.
void CloseRange(int first, int last) {
  if (first > last || syscall(SYS_close_range, first, last, 0U) == 0) return;
  rlimit limit = {};
  int most = 65536;  // an older kernel; nobody says which are open
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(most)) {
    most = static_cast<int>(limit.rlim_cur);
  }
  for (int fd = first; fd < most && fd <= last; ++fd) close(fd);
}

// A descriptor that is none of the standard ones, which a program may have closed.
int AboveStandard(int fd) {
  const int above = fd < 0 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  return above < 0 ? fd : above;
}

// What is called from here on, until the program runs, is async-signal-safe: the other threads of
// the process are not there, whatever locks they held.

[[noreturn]] void Become(const char* const* argv, char* const* env, int result, int errors,
                         const sigset_t* none) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  for (int s = 1; s < 65; ++s) {
    if (s != SIGKILL && s != SIGSTOP) sigaction(s, &standard, nullptr);
  }
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
  }
  dup2(errors >= 0 ? errors : null, STDERR_FILENO);
  sigprocmask(SIG_SETMASK, none, nullptr);
  execve(argv[0], const_cast<char* const*>(argv), env);
  WriteResult(result, {Result::kNotRun, errno});
  _exit(127);
}

[[noreturn]] void Between(const char* const* argv, char* const* env, int result, int errors,
                          const sigset_t* none, pid_t parent, int64_t until) {
  // What the program closes meanwhile is to be closed, and the command gets none of it.
  result = AboveStandard(result);
  errors = AboveStandard(errors);
  int last = STDERR_FILENO;
  const int kept[] = {result < errors ? result : errors, result < errors ? errors : result};
  for (const int next : kept) {
    if (next <= last) continue;
    CloseRange(last + 1, next - 1);
    last = next;
  }
  CloseRange(last + 1, INT_MAX);
  // Where it is ignored, children leave nothing to wait for.
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &standard, nullptr);
  const pid_t child = Clone(SIGCHLD);
  if (child == 0) Become(argv, env, result, errors, none);
  if (child < 0) {
    WriteResult(result, {Result::kNotRun, errno});
    _exit(0);
  }
  sigset_t ended;
  sigemptyset(&ended);
  sigaddset(&ended, SIGCHLD);
  for (;;) {
    int status = 0;
    const pid_t got = waitpid(child, &status, WNOHANG);
    if (got == child) {
      if (WIFEXITED(status)) {
        WriteResult(result, {Result::kExit, WEXITSTATUS(status)});
      } else {
        WriteResult(result, {Result::kSignal, WTERMSIG(status)});
      }
      kill(-child, SIGKILL);  // what it left running
      _exit(0);
    }
    const int64_t left = until - Now();
    if (left <= 0 || getppid() != parent) {
      kill(-child, SIGKILL);
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      WriteResult(result, {Result::kDeadline, 0});
      _exit(0);
    }
    const timespec wait = {0, (left < 100 ? left : 100) * 1000000L};
    sigtimedwait(&ended, nullptr, &wait);
  }
}

// The environment without what would load this library into the program. Pointers are into environ.
bool Environment(List<char*>* list) {
  for (char** p = environ; p != nullptr && *p != nullptr; ++p) {
    if (After(*p, "LD_PRELOAD=") == nullptr && !list->Add(*p)) return false;
  }
  return list->Add(nullptr);
}

void ReadText(int fd, Text* text) {
  char part[kMostText];
  const ssize_t n = pread(fd, part, sizeof part, 0);
  if (n <= 0) return;
  text->Add(part, static_cast<size_t>(n));
}

void Reason(const char* before, int error, Text* text) {
  text->Clear();
  text->Add(before).Add(": ").Add(strerror(error));
}

}  // namespace

Answer Run(const char* const* argv, int milliseconds, Text* text) {
  List<char*> env;
  int ends[2];
  if (!Environment(&env) || pipe2(ends, O_CLOEXEC) != 0) {
    Reason("cannot start", errno, text);
    return Answer::kNotRun;
  }
  const int errors = static_cast<int>(syscall(SYS_memfd_create, "graft", 1U));
  const int64_t until = Now() + milliseconds;
  const pid_t self = getpid();

  // Signals of a terminal go to the process between too, which has this process's handlers until it
  // ends.
  sigset_t all, before, none;
  sigfillset(&all);
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t between = Clone(0);
  if (between == 0) Between(argv, env.data(), ends[1], errors, &none, self, until);
  const int failed = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);

  close(ends[1]);
  Answer answer = Answer::kNotRun;
  if (between < 0) {
    Reason("cannot start", failed, text);
  } else {
    Result r = {Result::kNone, 0};
    pollfd wait = {ends[0], POLLIN, 0};
    for (;;) {
      // It ends by itself; the time beyond is for one that somebody stopped.
      const int64_t left = until + 5000 - Now();
      const int ready = poll(&wait, 1, left <= 0 ? 0 : static_cast<int>(left));
      if (ready < 0 && errno == EINTR) continue;
      if (ready > 0) {
        ssize_t n;
        do {
          n = read(ends[0], &r, sizeof r);
        } while (n < 0 && errno == EINTR);
      } else {
        r.kind = Result::kDeadline;
      }
      break;
    }
    if (r.kind == Result::kDeadline || r.kind == Result::kNone) kill(between, SIGKILL);
    while (waitpid(between, nullptr, __WALL) < 0 && errno == EINTR) {
    }
    switch (r.kind) {
      case Result::kExit:
        if (errors >= 0) ReadText(errors, text);
        answer = r.value == 0 ? Answer::kDone : Answer::kFailed;
        break;
      case Result::kSignal:
        text->Add("was ended by signal ").Number(r.value);
        answer = Answer::kFailed;
        break;
      case Result::kNotRun:
        Reason("cannot start", r.value, text);
        break;
      case Result::kDeadline:
        answer = Answer::kDeadline;
        break;
      case Result::kNone:
        text->Add("was ended from outside");
        answer = Answer::kFailed;
        break;
    }
  }
  close(ends[0]);
  if (errors >= 0) close(errors);
  return answer;
}

}  // namespace graft
