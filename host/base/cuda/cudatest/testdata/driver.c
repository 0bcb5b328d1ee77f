// A CUDA driver without a device, for tests: it has the functions that host/base/cuda calls, over
// the host's memory, and does to a process what NVIDIA's does.
//
//  - Work in a stream waits until somebody waits for it: who does not wait is found out.
//  - Addresses of its device memory are not addresses of the host.
//  - Every argument is checked; what is wrong first can be asked for (fake_complaint).
//  - What was freed is not used again, so a second free is seen; what is left counts (fake_get).
//  - It takes the process's signal handlers, without SA_ONSTACK, when it starts, and again at its
//    first module and its first launch.
//  - It does not start where it may not listen on a Unix socket.
//
// It is told what to do by fake_set, or by FAKE_CUDA, "version=12040 devices=0" for example:
//
//  version=N         cuDriverGetVersion's answer, 13000 unless told; it fails with 0
//  devices=N         how many devices there are, 2 unless told; without any, cuInit fails
//  init=N            cuInit's result
//  hide=NAME         a function that is not there
//  fail=NAME:N:CODE  the Nth call from now of a function gives CODE
//  signals=N         0: handlers are left alone; 2: they stay, without SA_ONSTACK
//  sigurg=1          the handler of SIGURG ends the process too; it ignores the signal unless told
//  slow=N            to wait for a stream takes N milliseconds, during which others can call
//  contexts=N        how often the first device's context counts as retained
//  abandoned=N       what was abandoned until now counts as N
#include "memory.h"
#include "modules.h"
#include "streams.h"

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
