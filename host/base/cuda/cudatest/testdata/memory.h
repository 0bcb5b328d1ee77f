// The driver's functions for devices, contexts, memory and copies.
#pragma once

#include "work.h"

EXPORT CUresult cuDriverGetVersion(int *out) {
  *out = version;
  return version > 0 ? SUCCESS : 999;
}

// listens on an abstract Unix socket of its own, as NVIDIA's driver must to start.
static bool listens(void) {
  static int fd = -1;
  struct sockaddr_un any = {.sun_family = AF_UNIX};
  if (fd >= 0) return true;
  fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  return fd >= 0 && !bind(fd, (struct sockaddr *)&any, sizeof any.sun_family) && !listen(fd, 1);
}

EXPORT CUresult cuInit(unsigned flags) {
  pthread_mutex_lock(&lock);
  if (flags) complain("cuInit: flags %u", flags);
  take_handlers();
  started = true;
  if (!listens()) return leave(OPERATING_SYSTEM);
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
    {OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM",
     "OS call failed or operation not supported on this OS"},
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
