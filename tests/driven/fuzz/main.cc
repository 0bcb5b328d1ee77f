// Fuzzes operators as a model would drive them: cases run in ONNX Runtime in child processes, under
// sanitizers.
//
//   fuzz_operators --runtime LIB --corpus DIR... [--time 60s] [--jobs N] [--seed N] [--work
//   DIR] LIBRARY... fuzz_operators --runtime LIB --replay FILE LIBRARY...
//
// The cases of the corpus run first, then such as are made from them, for that many seconds of
// processor time. A child that ends, that takes ten seconds over one case, or that allocates more
// than 512 MiB at once is a finding: its case is written to DIR/findings, and one line says how to
// run it again. DIR also holds what was learnt and how much was done, so that another run goes on
// from there. Ends with 1 where there was a finding.
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <new>
#include <sstream>
#include <stdexcept>

#include "mutate.h"
#include "session.h"

namespace graft::driven {
constexpr size_t kAllocation = 512 << 20;  // bytes at once
}

// What ONNX Runtime allocates outputs and workspaces with, which the sanitizer's would end the
// process of for lack of memory: here a model gets an error, as it does elsewhere.
void* operator new(size_t size, std::align_val_t alignment) {
  void* memory = nullptr;
  if (size > graft::driven::kAllocation ||
      posix_memalign(&memory, static_cast<size_t>(alignment), size) != 0) {
    throw std::bad_alloc();
  }
  return memory;
}
void operator delete(void* memory, std::align_val_t) noexcept { free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { free(memory); }

extern "C" {
const char* __asan_default_options() {
  return "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=2048:handle_abort=1:"
         "max_malloc_fill_size=1048576:malloc_fill_byte=190:quarantine_size_mb=32";
}
const char* __ubsan_default_options() { return "print_stacktrace=1"; }
int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, size_t),
                                              void (*)(const volatile void*));
}

namespace graft::driven {
namespace {

constexpr double kHang = 10;  // seconds of processor time for a case
constexpr int kOperators = 64;
constexpr const char* kStages[] = {"refused when loaded", "refused when run", "answered"};

struct Options {
  std::string runtime, replay, work;
  std::vector<std::string> corpus, libraries;
  double seconds = 60;
  int jobs = 1;
  uint64_t seed = 1;
};

// What a child tells its parent, in memory that both have.
struct Slot {
  std::atomic<uint64_t> begun, ended;
  std::atomic<size_t> allocated;  // the most at once in this case
  std::atomic<uint64_t> sessions;
  struct {
    char name[64];
    std::atomic<uint64_t> stages[3];
  } operators[kOperators];
  char text[1 << 20];
};

Slot* mine = nullptr;
volatile std::sig_atomic_t asked = 0;  // to end, with what was done so far

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::vector<std::string> Files(const std::string& folder) {
  std::vector<std::string> out;
  if (DIR* dir = opendir(folder.c_str())) {
    while (const dirent* entry = readdir(dir)) {
      const std::string name = entry->d_name;
      if (name.size() > 4 && name.substr(name.size() - 4) == ".txt") {
        out.push_back(folder + '/' + name);
      }
    }
    closedir(dir);
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string Hash(const std::string& text) {
  uint64_t h = 0xCBF29CE484222325;
  for (const unsigned char c : text) h = (h ^ c) * 0x100000001B3;
  char out[20];
  std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(h));
  return out;
}

[[noreturn]] void Fault(const std::string& what) {
  std::cerr << "FAULT: " << what << std::endl;
  _exit(98);
}

Outcome RunOne(Runtime* runtime, const Case& c) {
  const std::string text = c.Text();
  const size_t size = std::min(text.size(), sizeof mine->text - 1);
  std::memcpy(mine->text, text.data(), size);
  mine->text[size] = 0;
  mine->allocated = 0;
  ++mine->begun;
  const Outcome outcome = runtime->Run(c);
  if (!outcome.fault.empty()) Fault(c.op + ": " + outcome.fault);
  if (mine->allocated > kAllocation) {
    Fault(c.op + ": it allocated " + std::to_string(mine->allocated) + " bytes at once");
  }
  ++mine->ended;
  mine->sessions = static_cast<uint64_t>(runtime->sessions());
  for (auto& op : mine->operators) {
    if (op.name[0] == 0) std::snprintf(op.name, sizeof op.name, "%s", c.op.c_str());
    if (c.op == op.name) {
      ++op.stages[outcome.stage];
      break;
    }
  }
  return outcome;
}

// A child: runs `first` and those after it of the files, then what is made from them.
[[noreturn]] void Child(const Options& o, const std::vector<std::string>& files, size_t first,
                        uint64_t seed) {
  __sanitizer_install_malloc_and_free_hooks(
      [](const volatile void*, size_t size) {
        if (size > mine->allocated) mine->allocated = size;
      },
      [](const volatile void*) {});
  try {
    Runtime runtime(o.runtime, o.libraries);
    Mutator mutator(seed, runtime);
    for (size_t i = 0; i < files.size(); ++i) {
      const Case c = Parse(ReadFile(files[i]));
      if (runtime.Find(c.op) == nullptr) continue;
      mutator.Add(c);
      if (i < first) continue;
      const Outcome outcome = RunOne(&runtime, c);
      mutator.Learn(c, outcome);
      if (!o.replay.empty()) std::cerr << kStages[outcome.stage] << ": " << outcome.message << '\n';
    }
    if (!o.replay.empty()) _exit(0);
    const std::string learnt = o.work + "/learnt/";
    while (true) {
      const Case c = mutator.Next();
      if (!mutator.Learn(c, RunOne(&runtime, c)) || o.work.empty()) continue;
      const std::string text = c.Text();
      if (text.size() < 8000) std::ofstream(learnt + Hash(text) + ".txt") << text;
    }
  } catch (const std::exception& e) {
    std::cerr << "cannot go on: " << e.what() << std::endl;
    _exit(97);
  }
}

// The line by which findings are told apart: where a sanitizer says that it was, without addresses.
std::string Reason(const std::string& log, bool hung) {
  std::istringstream lines(log);
  std::string summary, frame, at;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("FAULT: ", 0) == 0) return line.substr(7);
    if (line.rfind("cannot go on: ", 0) == 0) return line;
    const size_t wrong = line.find(" runtime error: ");
    if (wrong != std::string::npos && summary.empty()) {
      // Without numbers, which are others in every case, and the column.
      summary =
          line.substr(wrong + 16, line.find_first_of("0123456789-:", wrong + 16) - wrong - 16);
      frame = line.substr(0, line.rfind(':', wrong - 2));
    }
    if (line.find("ERROR: AddressSanitizer") != std::string::npos && summary.empty()) {
      summary = line.substr(line.find("AddressSanitizer"));
      summary = summary.substr(0, summary.find(" on "));
      summary = summary.substr(0, summary.find(" 0x"));
    }
    // The first frame with a source, which is one of ours.
    const size_t source = line.rfind(' ');
    if (frame.empty() && line.find("    #") == 0 && source != std::string::npos &&
        (line.find("/plugins/") != std::string::npos || line.find("/abi/") != std::string::npos) &&
        line.find(".so+") == std::string::npos) {
      frame = line.substr(source + 1);
    }
  }
  for (const char* root : {"/plugins/", "/abi/"}) {
    if (frame.rfind(root) != std::string::npos) frame.erase(0, frame.rfind(root) + 1);
  }
  if (hung)
    return "more than ten seconds of processor time" + (frame.empty() ? "" : " at " + frame);
  if (summary.empty()) return "the process ended silently";
  return summary + (frame.empty() ? "" : " at " + frame);
}

double ProcessorTime(pid_t pid) {
  clockid_t clock;
  timespec t{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0) return 0;
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

struct Job {
  Slot* slot = nullptr;
  pid_t pid = 0;
  size_t first = 0;   // of the files that it has still to run
  double used = 0;    // by children that ended
  double now = 0;     // by this one
  uint64_t seen = 0;  // its last case, and the time when that began
  double since = 0;
  uint64_t sessions = 0;  // by children that ended
  bool hung = false;
};

class Supervisor {
 public:
  explicit Supervisor(const Options& o) : o_(o) {
    logs_ = o_.work.empty() ? "/tmp/fuzz_operators." + std::to_string(getpid()) : o_.work + "/job";
    if (!o_.work.empty()) {
      for (const char* sub : {"", "/learnt", "/findings"}) mkdir((o_.work + sub).c_str(), 0755);
    }
    if (!o_.replay.empty()) {
      files_ = {o_.replay};
    } else {
      for (const std::string& folder : o_.corpus) {
        for (const std::string& f : Files(folder)) files_.push_back(f);
      }
      if (!o_.work.empty()) {
        for (const std::string& f : Files(o_.work + "/learnt")) files_.push_back(f);
      }
    }
    earlier_ = Earlier()["seconds"];
    if (files_.empty()) throw std::runtime_error("no case to begin with");
  }

  int Run() {
    jobs_.resize(static_cast<size_t>(o_.jobs));
    for (size_t i = 0; i < jobs_.size(); ++i) {
      void* memory =
          mmap(nullptr, sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) throw std::runtime_error("no memory to share with a child");
      jobs_[i].slot = static_cast<Slot*>(memory);
      Start(i);
    }
    double shown = 0;
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { asked = 1; });
    while (Used() < o_.seconds && !ended_ && asked == 0) {
      usleep(50000);
      for (size_t i = 0; i < jobs_.size() && !ended_; ++i) Look(i);
      if (Used() - shown > 30) {
        shown = Used();
        std::cerr << static_cast<int>(shown) << " s of processor time, " << Total() << " runs, "
                  << findings_.size() << " findings" << std::endl;
      }
    }
    for (Job& job : jobs_) {
      if (job.pid == 0) continue;
      kill(job.pid, SIGKILL);
      waitpid(job.pid, nullptr, 0);
    }
    for (size_t i = 0; i < jobs_.size(); ++i) unlink(Log(i).c_str());
    Say();
    return findings_.empty() ? 0 : 1;
  }

 private:
  std::string Log(size_t i) const { return logs_ + '.' + std::to_string(i) + ".log"; }

  void Start(size_t i) {
    Job& job = jobs_[i];
    job.since = job.now = 0;
    job.hung = false;
    job.slot->begun = job.slot->ended = 0;
    job.seen = 0;
    // A run that goes on where another ended makes other cases.
    const uint64_t seed =
        (o_.seed + earlier_) * 1000003 + static_cast<uint64_t>(i) * 7919 + starts_++;
    job.pid = fork();
    if (job.pid != 0) return;
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
    mine = job.slot;
    const int fd = open(Log(i).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(fd, 2);
    // The first job runs the corpus; all begin from it.
    Child(o_, files_, i == 0 ? job.first : files_.size(), seed);
  }

  void Look(size_t i) {
    Job& job = jobs_[i];
    int status = 0;
    if (waitpid(job.pid, &status, WNOHANG) == job.pid) {
      job.used += job.now;
      job.sessions += job.slot->sessions;
      job.slot->sessions = 0;
      if (status == 0) {
        std::cerr << ReadFile(Log(i));
      } else {
        Finding(i);
      }
      if (o_.replay.empty()) {
        if (i == 0) job.first = std::min(files_.size(), job.first + job.slot->begun);
        Start(i);
      } else {
        ended_ = true;
        job.pid = 0;
      }
      return;
    }
    job.now = ProcessorTime(job.pid);
    const uint64_t begun = job.slot->begun;
    if (begun != job.seen || job.slot->ended == begun) {
      job.seen = begun;
      job.since = job.now;
    } else if (job.now - job.since > kHang && !job.hung) {
      job.hung = true;
      kill(job.pid, SIGABRT);
    } else if (job.now - job.since > 2 * kHang) {
      kill(job.pid, SIGKILL);
    }
  }

  void Finding(size_t i) {
    const Job& job = jobs_[i];
    const std::string log = ReadFile(Log(i));
    const std::string why = Reason(log, job.hung);
    if (why.rfind("cannot go on", 0) == 0) throw std::runtime_error(why);
    if (++findings_[why] > 1) return;
    const std::string text = job.slot->text;
    std::string path = o_.replay;
    if (path.empty()) {
      const std::string op = Parse(text).op;
      path = (o_.work.empty() ? "/tmp" : o_.work + "/findings") + '/' + op + '-' +
             Hash(why).substr(8) + ".txt";
      std::ofstream(path) << "# " << why << '\n' << text;
      std::ofstream(path.substr(0, path.size() - 4) + ".log") << log;
    } else {
      std::cerr << log;
    }
    char self[4096] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) self[0] = 0;
    std::cerr << "FINDING after " << static_cast<int>(Used()) << " s: " << why
              << "\n  again: " << self << " --runtime " << o_.runtime << " --replay " << path;
    for (const std::string& library : o_.libraries) std::cerr << ' ' << library;
    std::cerr << std::endl;
  }

  double Used() const {
    double sum = 0;
    for (const Job& job : jobs_) sum += job.used + job.now;
    return sum;
  }

  uint64_t Total() const {
    uint64_t sum = 0;
    for (const Job& job : jobs_) {
      for (const auto& op : job.slot->operators) {
        for (const auto& n : op.stages) sum += n;
      }
    }
    return sum;
  }

  std::string Totals() const { return o_.work + "/totals.txt"; }

  // What earlier runs in the same folder did: "seconds", "sessions", "OPERATOR STAGE".
  std::map<std::string, uint64_t> Earlier() const {
    std::map<std::string, uint64_t> counts;
    if (o_.work.empty()) return counts;
    std::ifstream in(Totals());
    std::string name;
    for (uint64_t n = 0; in >> n && std::getline(in, name);) counts[name.substr(1)] += n;
    return counts;
  }

  // Prints what was done, with what earlier runs in the same folder did.
  void Say() {
    std::map<std::string, uint64_t> counts = Earlier();
    counts["seconds"] += static_cast<uint64_t>(Used());
    counts["findings"] += findings_.size();
    for (const Job& job : jobs_) {
      counts["sessions"] += job.sessions + job.slot->sessions;
      for (const auto& op : job.slot->operators) {
        for (int s = 0; s < 3 && op.name[0] != 0; ++s) {
          counts[std::string(op.name) + ' ' + kStages[s]] += op.stages[s];
        }
      }
    }
    std::ostringstream text;
    for (const auto& [name, n] : counts) text << n << ' ' << name << '\n';
    for (const auto& [why, n] : findings_) text << "FINDING " << n << " times: " << why << '\n';
    std::cout << text.str();
    if (o_.work.empty()) return;
    std::ofstream out(Totals());
    for (const auto& [name, n] : counts) out << n << ' ' << name << '\n';
  }

  const Options& o_;
  std::string logs_;
  std::vector<std::string> files_;
  std::vector<Job> jobs_;
  std::map<std::string, int> findings_;
  uint64_t starts_ = 0;
  uint64_t earlier_ = 0;  // seconds of earlier runs
  bool ended_ = false;
};

int Main(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind("--", 0) != 0) {
      o.libraries.push_back(word);
      continue;
    }
    if (++i == argc) throw std::runtime_error(word + " needs a value");
    const std::string value = argv[i];
    if (word == "--runtime") {
      o.runtime = value;
    } else if (word == "--replay") {
      o.replay = value;
    } else if (word == "--corpus") {
      o.corpus.push_back(value);
    } else if (word == "--work") {
      o.work = value;
    } else if (word == "--time") {
      size_t end = 0;
      o.seconds = std::stod(value, &end);
      const std::string unit = value.substr(end);
      o.seconds *= unit == "h" ? 3600 : unit == "m" ? 60 : 1;
    } else if (word == "--jobs") {
      o.jobs = std::stoi(value);
    } else if (word == "--seed") {
      o.seed = std::stoull(value);
    } else {
      throw std::runtime_error("no option " + word);
    }
  }
  if (!o.replay.empty()) o.seconds = 2 * kHang + 60;
  return Supervisor(o).Run();
}

}  // namespace
}  // namespace graft::driven

int main(int argc, char** argv) {
  try {
    return graft::driven::Main(argc, argv);
  } catch (const std::exception& e) {
    std::cerr << "fuzz_operators: " << e.what() << std::endl;
    return 2;
  }
}
