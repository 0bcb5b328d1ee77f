// What the fake driver is told and tells, its signal handlers, what it has made, and what every
// call begins and ends with.
#pragma once

#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef struct module *CUmodule;
typedef struct function *CUfunction;

enum {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  NO_BINARY = 209,
  INVALID_PTX = 218,
  OPERATING_SYSTEM = 304,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
};

enum { MAX_DEVICES = 4, MAX_OBJECTS = 1 << 14, MAX_PARAMETERS = 16, MAX_FUNCTIONS = 8 };

// What a device's memory may hold, and where the host may not look.
static const uint64_t kTotalMemory = 1ull << 30;
static const uint64_t kOffset = 1ull << 47;
static const int kMaxShared = 48 << 10, kMaxSharedOptin = 227 << 10;

enum kind { MEMORY, HOST, STREAM, EVENT, MODULE, KINDS };

struct context {
  int device, references;
};

struct object {
  enum kind kind;
  bool alive;
  struct context *context;
  char *data;  // memory as the host sees it; or the struct of the others
  size_t size;
};

struct function {
  char name[64];
  struct module *module;
  int parameters, sizes[MAX_PARAMETERS], max_threads, max_shared;
};

struct module {
  struct function functions[MAX_FUNCTIONS];
  int count;
  uint32_t *answer;  // its only variable
};

struct operation {
  enum { COPY, SET8, SET32, LAUNCH, RECORD, WAIT } type;
  char *to, *from;
  size_t count;
  uint32_t value;
  struct function *function;
  unsigned grid, block;
  unsigned char arguments[MAX_PARAMETERS][16];
  struct event *event;
  struct stream *stream;
  size_t until;
};

struct stream {
  unsigned flags;
  struct operation *queue;
  size_t length, done;
};

struct event {
  unsigned flags;
  bool recorded, reached;
  struct stream *stream;
  size_t at;
  double time;
};

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int version = 13000, devices = 2, init_result = 0, take_signals = 1, end_at_sigurg, slow;
static char hidden[64], fail_name[64];
static int fail_in, fail_code;
static bool started, taken_module, taken_launch;
static struct context contexts[MAX_DEVICES];
static struct object objects[MAX_OBJECTS];
static int object_count, abandoned, waiting;
static size_t image_length;
static double now;
static char complaint[256];
static _Thread_local struct context *stack[32];
static _Thread_local int depth;

static void complain(const char *format, ...) {
  if (complaint[0]) return;
  va_list list;
  va_start(list, format);
  vsnprintf(complaint, sizeof complaint, format, list);
  va_end(list);
}

// --- what it is told, and what it tells

EXPORT void fake_set(const char *name, const char *value) {
  pthread_mutex_lock(&lock);
  if (!strcmp(name, "version")) version = atoi(value);
  if (!strcmp(name, "devices")) devices = atoi(value);
  if (!strcmp(name, "init")) init_result = atoi(value);
  if (!strcmp(name, "signals")) take_signals = atoi(value);
  if (!strcmp(name, "sigurg")) end_at_sigurg = atoi(value);
  if (!strcmp(name, "contexts")) contexts[0].references = atoi(value);
  if (!strcmp(name, "abandoned")) abandoned = atoi(value);
  if (!strcmp(name, "slow")) slow = atoi(value);
  if (!strcmp(name, "hide")) snprintf(hidden, sizeof hidden, "%s", value);
  if (!strcmp(name, "fail")) sscanf(value, "%63[^:]:%d:%d", fail_name, &fail_in, &fail_code);
  pthread_mutex_unlock(&lock);
}

EXPORT int64_t fake_get(const char *name) {
  static const char *const names[KINDS] = {"memory", "host", "streams", "events", "modules"};
  pthread_mutex_lock(&lock);
  int64_t n = -1;
  if (!strcmp(name, "contexts")) {
    n = 0;
    for (int i = 0; i < MAX_DEVICES; i++) n += contexts[i].references;
  } else if (!strcmp(name, "current")) {
    n = depth;
  } else if (!strcmp(name, "abandoned")) {
    n = abandoned;  // what went away with its context
  } else if (!strcmp(name, "waiting")) {
    n = waiting;  // for streams
  } else if (!strcmp(name, "image")) {
    n = (int64_t)image_length;  // of the last module
  } else if (!strcmp(name, "fail")) {
    n = fail_in;  // 0 once the failure has happened
  }
  for (int k = 0; k < KINDS; k++) {
    if (strcmp(name, names[k])) continue;
    n = 0;
    for (int i = 0; i < object_count; i++) n += objects[i].alive && objects[i].kind == (enum kind)k;
  }
  pthread_mutex_unlock(&lock);
  return n;
}

EXPORT const char *fake_complaint(void) { return complaint; }

__attribute__((constructor)) static void read_environment(void) {
  const char *text = getenv("FAKE_CUDA");
  char copy[512], *rest = NULL;
  if (!text) return;
  snprintf(copy, sizeof copy, "%s", text);
  for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    char *value = strchr(word, '=');
    if (!value) continue;
    *value = 0;
    fake_set(word, value + 1);
  }
}

// --- signals

static void handler(int signal) {
  static const char text[] = "the driver's handler got a signal\n";
  ssize_t ignored = write(2, text, sizeof text - 1);
  (void)ignored;
  _exit(60 + signal);
}

// SIGURG is what Go's runtime stops goroutines with, at any time: between this driver's sigaction
// and the moment that Go's handlers are back as well. It sends it again until it is heard, so to
// miss one does no harm.
static void later(int signal) { (void)signal; }

static void take_handlers(void) {
  if (!take_signals) return;
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;  // no SA_ONSTACK
  sigemptyset(&action.sa_mask);
  for (int s = 1; s <= 64; s++) {
    if (s == SIGKILL || s == SIGSTOP) continue;
    if (s == SIGURG && !end_at_sigurg) {
      struct sigaction quiet = {.sa_handler = later, .sa_flags = SA_ONSTACK | SA_RESTART};
      if (take_signals != 2) sigaction(s, &quiet, NULL);
      continue;
    }
    if (take_signals == 2) {
      if (sigaction(s, NULL, &action)) continue;
      action.sa_flags &= ~SA_ONSTACK;
    }
    sigaction(s, &action, NULL);  // libc reserves 32 and 33
  }
}

// --- every call

static CUresult leave(CUresult result) {
  pthread_mutex_unlock(&lock);
  return result;
}

// enter locks, and gives the result that the call has to fail with, if any.
static CUresult enter(const char *name, bool needs_context) {
  pthread_mutex_lock(&lock);
  if (fail_in > 0 && !strcmp(name, fail_name) && --fail_in == 0) return fail_code;
  if (!started) {
    complain("%s before cuInit", name);
    return NOT_INITIALIZED;
  }
  if (needs_context && (depth == 0 || stack[depth - 1]->references == 0)) {
    complain("%s without a current context", name);
    return INVALID_CONTEXT;
  }
  return SUCCESS;
}

#define ENTER(needs_context)                          \
  do {                                                \
    CUresult failed = enter(__func__, needs_context); \
    if (failed) return leave(failed);                 \
  } while (0)

#define REQUIRE(condition, result)                        \
  do {                                                    \
    if (!(condition)) {                                   \
      complain("%s: not true: %s", __func__, #condition); \
      return leave(result);                               \
    }                                                     \
  } while (0)

static struct object *add(enum kind kind, void *data, size_t size) {
  if (object_count == MAX_OBJECTS) abort();
  struct object *o = &objects[object_count++];
  *o = (struct object){kind, true, stack[depth - 1], data, size};
  return o;
}

// find is the live object of the current context that has so many bytes from an address on.
static struct object *find(enum kind kind, const void *data, size_t size) {
  const char *p = data;
  for (int i = 0; i < object_count; i++) {
    struct object *o = &objects[i];
    if (o->kind != kind || !o->alive || (kind != HOST && o->context != stack[depth - 1])) continue;
    if (p >= o->data && size <= o->size && p <= o->data + o->size - size) return o;
  }
  return NULL;
}

static struct object *exactly(enum kind kind, const void *data) {
  struct object *o = find(kind, data, 0);
  return o && o->data == data ? o : NULL;
}

static char *on_host(CUdeviceptr p) { return (char *)(uintptr_t)(p - kOffset); }

static bool is_memory(CUdeviceptr p, size_t size) {
  if (find(MEMORY, on_host(p), size)) return true;
  for (int i = 0; i < object_count; i++) {
    struct object *o = &objects[i];
    if (o->kind != MODULE || !o->alive) continue;
    char *answer = (char *)((struct module *)o->data)->answer;
    if (on_host(p) >= answer && on_host(p) + size <= answer + 4) return true;
  }
  return false;
}
