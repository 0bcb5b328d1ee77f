/* A CUDA runtime without a GPU, for ONNX Runtime's CUDA provider: device memory is the host's, a
 * launch does nothing, every call succeeds. What a session does with it is said on standard error.
 * Functions that are not here are added by provider_test.go: they succeed and do nothing. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int current;
static intptr_t streams;

int cudaDriverGetVersion(int* version) { return *version = 13000, 0; }
int cudaRuntimeGetVersion(int* version) { return *version = 13000, 0; }
int cudaGetDeviceCount(int* count) { return *count = 4, 0; }
int cudaGetDevice(int* device) { return *device = current, 0; }
int cudaSetDevice(int device) { return current = device, 0; }
int cudaMemGetInfo(size_t* left, size_t* total) {
  *left = *total = (size_t)8 << 30;
  return 0;
}

/* cudaDeviceProp, whose size and offsets provider_test.go states. */
int cudaGetDeviceProperties(char* properties, int device) {
  (void)device;
  memset(properties, 0, PROPERTIES);
  strcpy(properties, "played");
  *(size_t*)(properties + TOTAL_MEMORY) = (size_t)8 << 30;
  *(int*)(properties + MAJOR) = 9;
  *(int*)(properties + PROCESSORS) = 132;
  return 0;
}
int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  const int major = 75, processors = 16;
  *value = attribute == major ? 9 : attribute == processors ? 132 : 0;
  return 0;
}

static int allocate(void** memory, size_t size) {
  *memory = aligned_alloc(256, (size + 255) / 256 * 256);
  return 0;
}
static int release(void* memory) { return free(memory), 0; }
int cudaMalloc(void** memory, size_t size) { return allocate(memory, size); }
int cudaMallocHost(void** memory, size_t size) { return allocate(memory, size); }
int cudaHostAlloc(void** memory, size_t size, unsigned flags) {
  (void)flags;
  return allocate(memory, size);
}
int cudaFree(void* memory) { return release(memory); }
int cudaFreeHost(void* memory) { return release(memory); }

int cudaMemcpy(void* to, const void* from, size_t size, int kind) {
  fprintf(stderr, "copy of %zu bytes, kind %d\n", size, kind);
  return memcpy(to, from, size), 0;
}
int cudaMemcpyAsync(void* to, const void* from, size_t size, int kind, void* stream) {
  (void)stream;
  return cudaMemcpy(to, from, size, kind);
}
int cudaMemset(void* to, int value, size_t size) { return memset(to, value, size), 0; }
int cudaMemsetAsync(void* to, int value, size_t size, void* stream) {
  (void)stream;
  return cudaMemset(to, value, size);
}

int cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  (void)flags;
  *stream = (void*)(0x5000 + 16 * ++streams);
  fprintf(stderr, "stream %p on device %d\n", *stream, current);
  return 0;
}
int cudaStreamCreate(void** stream) { return cudaStreamCreateWithFlags(stream, 0); }
int cudaStreamIsCapturing(void* stream, int* status) {
  (void)stream;
  return *status = 0, 0;
}
int cudaEventCreateWithFlags(void** event, unsigned flags) {
  (void)flags;
  return *event = &streams, 0;
}
int cudaEventCreate(void** event) { return cudaEventCreateWithFlags(event, 0); }

const char* cudaGetErrorName(int error) { return error == 0 ? "cudaSuccess" : "played"; }
const char* cudaGetErrorString(int error) { return cudaGetErrorName(error); }
int cublasCreate_v2(void** handle) { return *handle = &streams, 0; }
int cublasLtCreate(void** handle) { return *handle = &streams, 0; }
const char* cublasGetStatusName(int status) { return cudaGetErrorName(status); }
const char* cublasGetStatusString(int status) { return cudaGetErrorName(status); }
void** __cudaRegisterFatBinary(void* binary) {
  static void* handle;
  handle = binary;
  return &handle;
}
