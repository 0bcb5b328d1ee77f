// A CUDA driver without a device, for tests: it has the functions that host/cuda calls, over memory
// of the host, and does to a process what NVIDIA's does.
//
//  - Work put into a stream waits until somebody waits for it, so that whoever does not wait is
//  found out.
//  - Addresses of its device memory are not addresses of the host.
//  - Every argument is checked; the first that is wrong can be asked for (fake_complaint).
//  - Nothing that was freed is used again, so a second free is seen; what is not freed is counted
//  (fake_get).
//  - It takes the process's signal handlers, without SA_ONSTACK, when it starts, and again at its
//  first
//    module and its first launch.
//
// It is told what to do by fake_set, or by FAKE_CUDA in the environment, "version=12040 devices=0":
//  version=N        cuDriverGetVersion's answer, 13000 unless told; it fails with 0
//  devices=N        how many devices there are, 2 unless told; without any, cuInit fails as the
//  real one does init=N           cuInit's result hide=NAME        a function that is not there
//  fail=NAME:N:CODE the Nth call from now of a function gives CODE
//  signals=0        handlers are left alone; 2: they stay, without SA_ONSTACK
//  slow=N           to wait for a stream takes N milliseconds, during which others can call
//  contexts=N       how often the first device's context counts as retained
//  abandoned=N      what was abandoned until now counts as N
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
static int version = 13000, devices = 2, init_result = 0, take_signals = 1, slow;
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

static void take_handlers(void) {
  if (!take_signals) return;
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;  // no SA_ONSTACK
  sigemptyset(&action.sa_mask);
  for (int s = 1; s <= 64; s++) {
    if (s == SIGKILL || s == SIGSTOP) continue;
    if (take_signals == 2) {
      if (sigaction(s, NULL, &action)) continue;
      action.sa_flags &= ~SA_ONSTACK;
    }
    sigaction(s, &action, NULL);  // libc keeps 32 and 33 to itself
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

// --- work

static void run_until(struct stream *s, size_t end);

static void run_kernel(const struct operation *op) {
  const struct function *f = op->function;
  CUdeviceptr address;
  memcpy(&address, op->arguments[0], sizeof address);
  if (!strcmp(f->name, "scale")) {
    CUdeviceptr x_address;
    float a;
    uint32_t n;
    memcpy(&x_address, op->arguments[1], 8);
    memcpy(&a, op->arguments[2], 4);
    memcpy(&n, op->arguments[3], 4);
    if (n > op->grid * op->block) n = op->grid * op->block;
    if (n == 0) return;
    if (!is_memory(address, 4ull * n) || !is_memory(x_address, 4ull * n)) {
      complain("scale: no memory where its arguments point");
      return;
    }
    float *out = (float *)on_host(address), *x = (float *)on_host(x_address);
    for (uint32_t i = 0; i < n; i++) out[i] = x[i] * a + (float)i;
  } else if (!strcmp(f->name, "parameters")) {
    static const int places[] = {0, 0, 2, 4, 8, 16, 24, 40};
    if (!is_memory(address, 48)) {
      complain("parameters: no memory where its argument points");
      return;
    }
    for (int i = 1; i < f->parameters; i++) {
      memcpy(on_host(address) + places[i], op->arguments[i], f->sizes[i]);
    }
  } else if (!strcmp(f->name, "reverse")) {
    uint32_t *data = (uint32_t *)on_host(address);
    if (!is_memory(address, 4ull * op->grid * op->block)) {
      complain("reverse: no memory where its argument points");
      return;
    }
    for (unsigned b = 0; b < op->grid; b++, data += op->block) {
      for (unsigned i = 0; i < op->block / 2; i++) {
        uint32_t other = data[i];
        data[i] = data[op->block - 1 - i];
        data[op->block - 1 - i] = other;
      }
    }
  }
}

static void run(struct operation *op) {
  now += 0.25;
  switch (op->type) {
    case COPY:
      memcpy(op->to, op->from, op->count);
      break;
    case SET8:
      memset(op->to, (int)op->value, op->count);
      break;
    case SET32:
      for (size_t i = 0; i < op->count; i++) memcpy(op->to + 4 * i, &op->value, 4);
      break;
    case LAUNCH:
      run_kernel(op);
      break;
    case RECORD:
      op->event->reached = true;
      op->event->time = now;
      break;
    case WAIT:
      run_until(op->stream, op->until);
      break;
  }
}

static void run_until(struct stream *s, size_t end) {
  while (s->done < end && s->done < s->length) run(&s->queue[s->done++]);
}

static void run_all(bool non_blocking_too) {
  for (int i = 0; i < object_count; i++) {
    if (objects[i].kind != STREAM || !objects[i].alive) continue;
    struct stream *s = (struct stream *)objects[i].data;
    if (non_blocking_too || !s->flags) run_until(s, s->length);
  }
}

// put queues work; the default stream waits for the others and does not wait itself.
static void put(CUstream s, struct operation op) {
  if (!s) {
    run_all(false);
    run(&op);
    return;
  }
  s->queue = realloc(s->queue, (s->length + 1) * sizeof op);
  s->queue[s->length++] = op;
}

static bool is_stream(CUstream s) { return !s || exactly(STREAM, s); }

// --- the driver's functions

EXPORT CUresult cuDriverGetVersion(int *out) {
  *out = version;
  return version > 0 ? SUCCESS : 999;
}

EXPORT CUresult cuInit(unsigned flags) {
  pthread_mutex_lock(&lock);
  if (flags) complain("cuInit: flags %u", flags);
  take_handlers();
  started = true;
  return leave(init_result ? init_result : devices ? SUCCESS : NO_DEVICE);
}

static const struct {
  CUresult result;
  const char *name, *text;
} kErrors[] = {
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "forward compatibility was attempted on non supported HW"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult cuGetErrorName(CUresult result, const char **out) {
  for (size_t i = 0; i < sizeof kErrors / sizeof kErrors[0]; i++) {
    if (kErrors[i].result == result) return *out = kErrors[i].name, SUCCESS;
  }
  return *out = NULL, INVALID_VALUE;
}

static CUresult cuGetErrorString(CUresult result, const char **out) {
  for (size_t i = 0; i < sizeof kErrors / sizeof kErrors[0]; i++) {
    if (kErrors[i].result == result) return *out = kErrors[i].text, SUCCESS;
  }
  return *out = NULL, INVALID_VALUE;
}

static CUresult cuDeviceGetCount(int *out) {
  ENTER(false);
  *out = devices;
  return leave(SUCCESS);
}

static CUresult cuDeviceGet(CUdevice *out, int ordinal) {
  ENTER(false);
  REQUIRE(ordinal >= 0 && ordinal < devices, INVALID_DEVICE);
  *out = ordinal;
  return leave(SUCCESS);
}

static CUresult cuDeviceGetName(char *out, int size, CUdevice device) {
  ENTER(false);
  REQUIRE(size >= 64 && device >= 0 && device < devices, INVALID_VALUE);
  snprintf(out, (size_t)size, "Fake H200 %d", device);
  return leave(SUCCESS);
}

static CUresult cuDeviceTotalMem(size_t *out, CUdevice device) {
  ENTER(false);
  REQUIRE(device >= 0 && device < devices, INVALID_DEVICE);
  *out = kTotalMemory;
  return leave(SUCCESS);
}

static CUresult cuDeviceGetAttribute(int *out, int attribute, CUdevice device) {
  static const int known[][2] = {
      {1, 1024},       {2, 1024},      {3, 1024},       {4, 64},   {5, INT32_MAX},
      {6, 65535},      {7, 65535},     {8, 48 << 10},   {10, 32},  {12, 65536},
      {16, 132},       {38, 50 << 20}, {39, 2048},      {75, 9},   {76, 0},
      {81, 228 << 10}, {82, 65536},    {97, 227 << 10}, {106, 32}, {120, 1},
  };
  ENTER(false);
  REQUIRE(device >= 0 && device < devices, INVALID_DEVICE);
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    if (known[i][0] == attribute) return *out = known[i][1], leave(SUCCESS);
  }
  return leave(INVALID_VALUE);
}

static CUresult cuDeviceGetUuid(unsigned char *out, CUdevice device) {
  ENTER(false);
  REQUIRE(device >= 0 && device < devices, INVALID_DEVICE);
  for (int i = 0; i < 16; i++) out[i] = (unsigned char)(16 * device + i);
  return leave(SUCCESS);
}

static CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
  ENTER(false);
  REQUIRE(device >= 0 && device < devices, INVALID_DEVICE);
  contexts[device].device = device;
  contexts[device].references++;
  *out = &contexts[device];
  return leave(SUCCESS);
}

static CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  ENTER(false);
  REQUIRE(device >= 0 && device < devices && contexts[device].references > 0, INVALID_CONTEXT);
  if (--contexts[device].references == 0) {
    for (int i = 0; i < object_count; i++) {
      if (objects[i].context != &contexts[device] || !objects[i].alive) continue;
      objects[i].alive = false;
      abandoned++;
    }
  }
  return leave(SUCCESS);
}

static CUresult cuCtxGetCurrent(CUcontext *out) {
  ENTER(false);
  *out = depth ? stack[depth - 1] : NULL;
  return leave(SUCCESS);
}

static CUresult cuCtxPushCurrent(CUcontext context) {
  ENTER(false);
  REQUIRE(context >= contexts && context < contexts + MAX_DEVICES && depth < 32, INVALID_CONTEXT);
  stack[depth++] = context;
  return leave(SUCCESS);
}

static CUresult cuCtxPopCurrent(CUcontext *out) {
  ENTER(false);
  REQUIRE(depth > 0, INVALID_CONTEXT);
  *out = stack[--depth];
  return leave(SUCCESS);
}

static CUresult cuCtxSynchronize(void) {
  ENTER(true);
  run_all(true);
  return leave(SUCCESS);
}

static CUresult cuMemAlloc(CUdeviceptr *out, size_t size) {
  ENTER(true);
  REQUIRE(size > 0, INVALID_VALUE);
  if (size > kTotalMemory) return leave(OUT_OF_MEMORY);
  char *data = aligned_alloc(256, (size + 255) / 256 * 256);
  memset(data, 0xcd, size);
  add(MEMORY, data, size);
  *out = (uintptr_t)data + kOffset;
  return leave(SUCCESS);
}

static CUresult cuMemFree(CUdeviceptr p) {
  ENTER(true);
  struct object *o = exactly(MEMORY, on_host(p));
  REQUIRE(o != NULL, INVALID_VALUE);
  run_all(true);
  o->alive = false;
  return leave(SUCCESS);
}

static CUresult cuMemGetInfo(size_t *free, size_t *total) {
  ENTER(true);
  *free = *total = kTotalMemory;
  for (int i = 0; i < object_count; i++) {
    if (objects[i].kind == MEMORY && objects[i].alive) *free -= objects[i].size;
  }
  return leave(SUCCESS);
}

static CUresult cuMemHostAlloc(void **out, size_t size, unsigned flags) {
  ENTER(true);
  REQUIRE(size > 0 && flags == 1, INVALID_VALUE);
  if (size > kTotalMemory) return leave(OUT_OF_MEMORY);
  *out = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  add(HOST, *out, size);
  return leave(SUCCESS);
}

static CUresult cuMemFreeHost(void *p) {
  ENTER(true);
  struct object *o = exactly(HOST, p);
  REQUIRE(o != NULL, INVALID_VALUE);
  for (int i = 0; i < object_count; i++) {
    if (objects[i].kind != STREAM || !objects[i].alive) continue;
    struct stream *s = (struct stream *)objects[i].data;
    for (size_t k = s->done; k < s->length; k++) {
      struct operation *op = &s->queue[k];
      bool used = op->type == COPY && ((op->to >= o->data && op->to < o->data + o->size) ||
                                       (op->from >= o->data && op->from < o->data + o->size));
      REQUIRE(!used, INVALID_VALUE);
    }
  }
  o->alive = false;
  return leave(SUCCESS);
}

static CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t size) {
  ENTER(true);
  REQUIRE(from != NULL && is_memory(to, size), INVALID_VALUE);
  put(NULL,
      (struct operation){.type = COPY, .to = on_host(to), .from = (char *)from, .count = size});
  return leave(SUCCESS);
}

static CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t size) {
  ENTER(true);
  REQUIRE(to != NULL && is_memory(from, size), INVALID_VALUE);
  put(NULL, (struct operation){.type = COPY, .to = to, .from = on_host(from), .count = size});
  return leave(SUCCESS);
}

static CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t size) {
  ENTER(true);
  REQUIRE(is_memory(to, size) && is_memory(from, size), INVALID_VALUE);
  REQUIRE(to + size <= from || from + size <= to, INVALID_VALUE);
  put(NULL,
      (struct operation){.type = COPY, .to = on_host(to), .from = on_host(from), .count = size});
  return leave(SUCCESS);
}

static CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t size, CUstream s) {
  ENTER(true);
  REQUIRE(is_memory(to, size) && is_stream(s), INVALID_VALUE);
  REQUIRE(find(HOST, from, size) != NULL, INVALID_VALUE);
  put(s, (struct operation){.type = COPY, .to = on_host(to), .from = (char *)from, .count = size});
  return leave(SUCCESS);
}

static CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t size, CUstream s) {
  ENTER(true);
  REQUIRE(is_memory(from, size) && is_stream(s), INVALID_VALUE);
  REQUIRE(find(HOST, to, size) != NULL, INVALID_VALUE);
  put(s, (struct operation){.type = COPY, .to = to, .from = on_host(from), .count = size});
  return leave(SUCCESS);
}

static CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream s) {
  ENTER(true);
  REQUIRE(is_memory(to, size) && is_memory(from, size) && is_stream(s), INVALID_VALUE);
  put(s, (struct operation){.type = COPY, .to = on_host(to), .from = on_host(from), .count = size});
  return leave(SUCCESS);
}

static CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) {
  ENTER(true);
  REQUIRE(is_memory(to, count), INVALID_VALUE);
  put(NULL, (struct operation){.type = SET8, .to = on_host(to), .value = value, .count = count});
  return leave(SUCCESS);
}

static CUresult cuMemsetD32(CUdeviceptr to, unsigned value, size_t count) {
  ENTER(true);
  REQUIRE(to % 4 == 0 && is_memory(to, 4 * count), INVALID_VALUE);
  put(NULL, (struct operation){.type = SET32, .to = on_host(to), .value = value, .count = count});
  return leave(SUCCESS);
}

static CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream s) {
  ENTER(true);
  REQUIRE(is_memory(to, count) && is_stream(s), INVALID_VALUE);
  put(s, (struct operation){.type = SET8, .to = on_host(to), .value = value, .count = count});
  return leave(SUCCESS);
}

static CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream s) {
  ENTER(true);
  REQUIRE(to % 4 == 0 && is_memory(to, 4 * count) && is_stream(s), INVALID_VALUE);
  put(s, (struct operation){.type = SET32, .to = on_host(to), .value = value, .count = count});
  return leave(SUCCESS);
}

static CUresult cuStreamCreate(CUstream *out, unsigned flags) {
  ENTER(true);
  REQUIRE(flags <= 1, INVALID_VALUE);
  *out = calloc(1, sizeof **out);
  (*out)->flags = flags;
  add(STREAM, *out, sizeof **out);
  return leave(SUCCESS);
}

static CUresult cuStreamDestroy(CUstream s) {
  ENTER(true);
  struct object *o = exactly(STREAM, s);
  REQUIRE(o != NULL, INVALID_HANDLE);
  run_until(s, s->length);
  o->alive = false;
  return leave(SUCCESS);
}

static CUresult cuStreamSynchronize(CUstream s) {
  ENTER(true);
  REQUIRE(s && is_stream(s), INVALID_HANDLE);
  if (slow) {
    waiting++;
    pthread_mutex_unlock(&lock);
    usleep(1000u * (unsigned)slow);
    pthread_mutex_lock(&lock);
    waiting--;
    REQUIRE(is_stream(s), INVALID_HANDLE);
  }
  run_until(s, s->length);
  return leave(SUCCESS);
}

static CUresult cuStreamQuery(CUstream s) {
  ENTER(true);
  REQUIRE(s && is_stream(s), INVALID_HANDLE);
  return leave(s->done == s->length ? SUCCESS : NOT_READY);
}

static CUresult cuStreamWaitEvent(CUstream s, CUevent event, unsigned flags) {
  ENTER(true);
  REQUIRE(is_stream(s) && exactly(EVENT, event) && !flags, INVALID_HANDLE);
  if (event->recorded && event->stream) {
    put(s, (struct operation){.type = WAIT, .stream = event->stream, .until = event->at + 1});
  }
  return leave(SUCCESS);
}

static CUresult cuEventCreate(CUevent *out, unsigned flags) {
  ENTER(true);
  REQUIRE(flags <= 3, INVALID_VALUE);
  *out = calloc(1, sizeof **out);
  (*out)->flags = flags;
  add(EVENT, *out, sizeof **out);
  return leave(SUCCESS);
}

static CUresult cuEventDestroy(CUevent event) {
  ENTER(true);
  struct object *o = exactly(EVENT, event);
  REQUIRE(o != NULL, INVALID_HANDLE);
  o->alive = false;
  return leave(SUCCESS);
}

static CUresult cuEventRecord(CUevent event, CUstream s) {
  ENTER(true);
  REQUIRE(exactly(EVENT, event) && is_stream(s), INVALID_HANDLE);
  event->recorded = true;
  event->reached = false;
  event->stream = s;
  event->at = s ? s->length : 0;
  put(s, (struct operation){.type = RECORD, .event = event});
  return leave(SUCCESS);
}

static CUresult cuEventSynchronize(CUevent event) {
  ENTER(true);
  REQUIRE(exactly(EVENT, event), INVALID_HANDLE);
  if (event->recorded && event->stream) run_until(event->stream, event->at + 1);
  return leave(SUCCESS);
}

static CUresult cuEventQuery(CUevent event) {
  ENTER(true);
  REQUIRE(exactly(EVENT, event), INVALID_HANDLE);
  return leave(!event->recorded || event->reached ? SUCCESS : NOT_READY);
}

static CUresult cuEventElapsedTime(float *out, CUevent start, CUevent end) {
  ENTER(true);
  REQUIRE(exactly(EVENT, start) && exactly(EVENT, end), INVALID_HANDLE);
  if (((start->flags | end->flags) & 2) || !start->recorded || !end->recorded) {
    return leave(INVALID_HANDLE);
  }
  if (!start->reached || !end->reached) return leave(NOT_READY);
  *out = (float)(end->time - start->time);
  return leave(SUCCESS);
}

// parse reads the entries of PTX: names, sizes of parameters, limits of threads.
static bool parse(struct module *m, const char *text) {
  static const struct {
    const char *name;
    int size;
  } types[] = {{".u8", 1}, {".u16", 2}, {".u32", 4}, {".f32", 4}, {".u64", 8}, {".f64", 8}};
  for (const char *at = text; (at = strstr(at, ".entry ")) != NULL;) {
    if (m->count == MAX_FUNCTIONS) return false;
    struct function *f = &m->functions[m->count++];
    f->module = m;
    f->max_threads = 1024;
    f->max_shared = kMaxShared;
    const char *open = strchr(at, '('), *close = open ? strchr(open, ')') : NULL;
    if (!close || sscanf(at, ".entry %63[a-z_](", f->name) != 1) return false;
    for (const char *p = open; (p = strstr(p, ".param ")) != NULL && p < close;) {
      char type[16];
      int align, size = 0;
      if (sscanf(p, ".param .align %d .b8 %*[a-z][%d]", &align, &size) != 2) {
        if (sscanf(p, ".param %15s", type) != 1) return false;
        for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
          if (!strcmp(type, types[i].name)) size = types[i].size;
        }
      }
      if (size == 0 || size > 16 || f->parameters == MAX_PARAMETERS) return false;
      f->sizes[f->parameters++] = size;
      p += 7;
    }
    sscanf(close + 1, " .maxntid %d", &f->max_threads);
    at = close;
  }
  return true;
}

static CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned count,
                                   const int *options, void **values) {
  ENTER(true);
  if (!taken_module) take_handlers();
  taken_module = true;
  REQUIRE(count == 2 && options[0] == 5 && options[1] == 6, INVALID_VALUE);
  char *log = values[0];
  size_t room = (size_t)(uintptr_t)values[1];
  REQUIRE(log != NULL && room >= 256 && room <= 1 << 20, INVALID_VALUE);
  log[room - 1] = 0;  // it is as large as it says
  if (!memcmp(image, "\177ELF", 4)) return leave(NO_BINARY);
  if (!strstr(image, ".version ")) return leave(INVALID_IMAGE);
  image_length = strlen(image);
  struct module *m = calloc(1, sizeof *m);
  if (!parse(m, image)) {
    values[1] = (void *)(uintptr_t)snprintf(
        log, room, "ptxas application ptx input, line 3; fatal   : Parsing error\n");
    free(m);
    return leave(INVALID_PTX);
  }
  m->answer = aligned_alloc(256, 256);
  *m->answer = 42;
  add(MODULE, m, sizeof *m);
  *out = m;
  return leave(SUCCESS);
}

static CUresult cuModuleUnload(CUmodule m) {
  ENTER(true);
  struct object *o = exactly(MODULE, m);
  REQUIRE(o != NULL, INVALID_HANDLE);
  run_all(true);
  o->alive = false;
  return leave(SUCCESS);
}

static CUresult cuModuleGetFunction(CUfunction *out, CUmodule m, const char *name) {
  ENTER(true);
  REQUIRE(exactly(MODULE, m), INVALID_HANDLE);
  for (int i = 0; i < m->count; i++) {
    if (!strcmp(m->functions[i].name, name)) return *out = &m->functions[i], leave(SUCCESS);
  }
  return leave(NOT_FOUND);
}

static CUresult cuModuleGetGlobal(CUdeviceptr *out, size_t *size, CUmodule m, const char *name) {
  ENTER(true);
  REQUIRE(exactly(MODULE, m), INVALID_HANDLE);
  if (strcmp(name, "answer")) return leave(NOT_FOUND);
  *out = (uintptr_t)m->answer + kOffset;
  *size = sizeof *m->answer;
  return leave(SUCCESS);
}

static bool is_function(CUfunction f) { return f && find(MODULE, f, sizeof *f); }

static CUresult cuFuncGetAttribute(int *out, int attribute, CUfunction f) {
  ENTER(true);
  REQUIRE(is_function(f), INVALID_HANDLE);
  switch (attribute) {
    case 0:
      return *out = f->max_threads, leave(SUCCESS);
    case 1:
    case 2:
    case 3:
      return *out = 0, leave(SUCCESS);
    case 4:
      return *out = 24, leave(SUCCESS);
    case 5:
      return *out = 80, leave(SUCCESS);
    case 6:
      return *out = 90, leave(SUCCESS);
    case 8:
      return *out = f->max_shared, leave(SUCCESS);
  }
  return leave(INVALID_VALUE);
}

static CUresult cuFuncSetAttribute(CUfunction f, int attribute, int value) {
  ENTER(true);
  REQUIRE(is_function(f) && attribute == 8, INVALID_HANDLE);
  if (value < 0 || value > kMaxSharedOptin) return leave(INVALID_VALUE);
  f->max_shared = value;
  return leave(SUCCESS);
}

static CUresult cuFuncGetParamInfo(CUfunction f, size_t i, size_t *offset, size_t *size) {
  ENTER(true);
  REQUIRE(is_function(f), INVALID_HANDLE);
  if (i >= (size_t)f->parameters) return leave(INVALID_VALUE);
  *offset = 0;
  for (size_t k = 0; k <= i; k++) {
    size_t align = f->sizes[k] == 12 ? 4 : (size_t)f->sizes[k];
    *offset = (*offset + align - 1) / align * align;
    if (k < i) *offset += (size_t)f->sizes[k];
  }
  *size = (size_t)f->sizes[i];
  return leave(SUCCESS);
}

static CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                               unsigned by, unsigned bz, unsigned shared, CUstream s,
                               void **arguments, void **extra) {
  ENTER(true);
  if (!taken_launch) take_handlers();
  taken_launch = true;
  REQUIRE(is_function(f) && is_stream(s), INVALID_HANDLE);
  REQUIRE(gx && gx <= INT32_MAX && gy && gy <= 65535 && gz && gz <= 65535, INVALID_VALUE);
  REQUIRE(bx && by && bz && (uint64_t)bx * by * bz <= (uint64_t)f->max_threads, INVALID_VALUE);
  REQUIRE(shared <= (unsigned)f->max_shared && !extra, INVALID_VALUE);
  struct operation op = {
      .type = LAUNCH, .function = f, .grid = gx * gy * gz, .block = bx * by * bz};
  for (int i = 0; i < f->parameters; i++) {
    size_t align = f->sizes[i] == 12 ? 4 : (size_t)f->sizes[i];
    REQUIRE(arguments && arguments[i] && (uintptr_t)arguments[i] % align == 0, INVALID_VALUE);
    memcpy(op.arguments[i], arguments[i], (size_t)f->sizes[i]);
  }
  put(s, op);
  return leave(SUCCESS);
}

static CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, CUfunction f, int threads,
                                                            size_t shared) {
  ENTER(true);
  REQUIRE(is_function(f), INVALID_HANDLE);
  if (threads < 1 || threads > f->max_threads) return leave(INVALID_VALUE);
  int by_threads = 2048 / threads, by_shared = (228 << 10) / ((int)shared + 1024);
  *out = by_threads < by_shared ? by_threads : by_shared;
  return leave(SUCCESS);
}

static CUresult cuOccupancyMaxPotentialBlockSize(int *blocks, int *threads, CUfunction f,
                                                 size_t (*size)(int), size_t shared, int limit) {
  ENTER(true);
  REQUIRE(is_function(f) && !size && shared <= (size_t)f->max_shared && limit >= 0, INVALID_VALUE);
  *threads = limit && limit < f->max_threads ? limit : f->max_threads;
  *blocks = 132 * (2048 / *threads);
  return leave(SUCCESS);
}

// old stands for forms of functions that were replaced: they take other arguments.
static CUresult old(void) {
  pthread_mutex_lock(&lock);
  complain("a function was called in a form that CUDA replaced");
  return leave(INVALID_VALUE);
}

#define NOW(name, since) \
  { #name, since, (void *)name }
#define OLD(name, since) \
  { #name, since, (void *)old }

static const struct {
  const char *name;
  int since;
  void *function;
} kFunctions[] = {
    NOW(cuInit, 2000),
    NOW(cuGetErrorName, 6000),
    NOW(cuGetErrorString, 6000),
    NOW(cuDeviceGetCount, 2000),
    NOW(cuDeviceGet, 2000),
    NOW(cuDeviceGetName, 2000),
    OLD(cuDeviceTotalMem, 2000),
    NOW(cuDeviceTotalMem, 3020),
    NOW(cuDeviceGetAttribute, 2000),
    OLD(cuDeviceGetUuid, 9020),
    NOW(cuDeviceGetUuid, 11040),
    NOW(cuDevicePrimaryCtxRetain, 7000),
    OLD(cuDevicePrimaryCtxRelease, 7000),
    NOW(cuDevicePrimaryCtxRelease, 11000),
    NOW(cuCtxGetCurrent, 4000),
    OLD(cuCtxPushCurrent, 2000),
    NOW(cuCtxPushCurrent, 4000),
    OLD(cuCtxPopCurrent, 2000),
    NOW(cuCtxPopCurrent, 4000),
    NOW(cuCtxSynchronize, 2000),
    OLD(cuCtxSynchronize, 13000),  // takes a context
    OLD(cuMemAlloc, 2000),
    NOW(cuMemAlloc, 3020),
    OLD(cuMemFree, 2000),
    NOW(cuMemFree, 3020),
    OLD(cuMemGetInfo, 2000),
    NOW(cuMemGetInfo, 3020),
    NOW(cuMemHostAlloc, 2020),
    NOW(cuMemFreeHost, 2000),
    OLD(cuMemcpyHtoD, 2000),
    NOW(cuMemcpyHtoD, 3020),
    OLD(cuMemcpyDtoH, 2000),
    NOW(cuMemcpyDtoH, 3020),
    OLD(cuMemcpyDtoD, 2000),
    NOW(cuMemcpyDtoD, 3020),
    OLD(cuMemcpyHtoDAsync, 2000),
    NOW(cuMemcpyHtoDAsync, 3020),
    OLD(cuMemcpyDtoHAsync, 2000),
    NOW(cuMemcpyDtoHAsync, 3020),
    OLD(cuMemcpyDtoDAsync, 3000),
    NOW(cuMemcpyDtoDAsync, 3020),
    OLD(cuMemsetD8, 2000),
    NOW(cuMemsetD8, 3020),
    OLD(cuMemsetD32, 2000),
    NOW(cuMemsetD32, 3020),
    NOW(cuMemsetD8Async, 3020),
    NOW(cuMemsetD32Async, 3020),
    NOW(cuStreamCreate, 2000),
    OLD(cuStreamDestroy, 2000),
    NOW(cuStreamDestroy, 4000),
    NOW(cuStreamSynchronize, 2000),
    NOW(cuStreamQuery, 2000),
    NOW(cuStreamWaitEvent, 3020),
    NOW(cuEventCreate, 2000),
    OLD(cuEventDestroy, 2000),
    NOW(cuEventDestroy, 4000),
    NOW(cuEventRecord, 2000),
    NOW(cuEventSynchronize, 2000),
    NOW(cuEventQuery, 2000),
    OLD(cuEventElapsedTime, 2000),
    NOW(cuEventElapsedTime, 12080),
    NOW(cuModuleLoadDataEx, 2010),
    NOW(cuModuleUnload, 2000),
    NOW(cuModuleGetFunction, 2000),
    OLD(cuModuleGetGlobal, 2000),
    NOW(cuModuleGetGlobal, 3020),
    NOW(cuFuncGetAttribute, 2020),
    NOW(cuFuncSetAttribute, 9000),
    NOW(cuFuncGetParamInfo, 12040),
    NOW(cuLaunchKernel, 4000),
    NOW(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050),
    NOW(cuOccupancyMaxPotentialBlockSize, 6050),
};

// The newest form that is not newer than the version asked for.
EXPORT CUresult cuGetProcAddress_v2(const char *name, void **out, int asked, uint64_t flags,
                                    int *status) {
  pthread_mutex_lock(&lock);
  int unasked;
  if (!status) status = &unasked;
  *out = NULL;
  *status = 1;  // no such name
  REQUIRE(flags == 1, INVALID_VALUE);
  if (asked > version) return leave(INVALID_VALUE);
  if (!strcmp(name, hidden)) return leave(SUCCESS);
  for (size_t i = 0; i < sizeof kFunctions / sizeof kFunctions[0]; i++) {
    if (strcmp(name, kFunctions[i].name)) continue;
    if (kFunctions[i].since <= asked) {
      *out = kFunctions[i].function;
      *status = 0;
    } else if (!*out) {
      *status = 2;  // only in a newer form
    }
  }
  return leave(SUCCESS);
}
