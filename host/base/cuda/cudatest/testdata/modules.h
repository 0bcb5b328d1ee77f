// The driver's functions for modules and kernels.
#pragma once

#include "work.h"

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
