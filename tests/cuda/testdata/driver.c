/* A CUDA driver that tests load in place of NVIDIA's: it has the version, and answers cuInit with
 * the code, that the variable GRAFT_TEST_DRIVER says, "version code". It shows no device, knows no
 * other function, and ends the process when anybody makes a context or makes one current. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_SUPPORTED = 801 };

static struct { int version, init; } machine;

__attribute__((constructor)) static void ReadMachine(void) {
  const char* text = getenv("GRAFT_TEST_DRIVER");
  if (text == NULL || sscanf(text, "%d %d", &machine.version, &machine.init) != 2) {
    fprintf(stderr, "GRAFT_TEST_DRIVER: found %s, need two numbers\n",
            text != NULL ? text : "nothing");
    abort();
  }
}

static int Init(unsigned flags) { return flags == 0 ? machine.init : INVALID_VALUE; }

static int DriverGetVersion(int* version) {
  *version = machine.version;
  return SUCCESS;
}

static int Nothing(void) { return NOT_SUPPORTED; }

static int MakeContext(void) {
  fputs("the test's driver was asked for a context\n", stderr);
  abort();
}

static int GetExportTable(const void** table, const void* id) {
  (void)id;
  *table = NULL;
  return NOT_SUPPORTED;
}

EXPORT int cuGetProcAddress_v2(const char* name, void** function, int version,
                               unsigned long long flags, int* found) {
  static const struct {
    const char* name;
    void* function;
  } known[] = {
      {"cuInit", (void*)&Init},
      {"cuDriverGetVersion", (void*)&DriverGetVersion},
      {"cuGetExportTable", (void*)&GetExportTable},
      {"cuGetProcAddress", (void*)&cuGetProcAddress_v2},
      {"cuDevicePrimaryCtxRetain", (void*)&MakeContext},
      {"cuCtxCreate", (void*)&MakeContext},
      {"cuCtxPushCurrent", (void*)&MakeContext},
      {"cuCtxSetCurrent", (void*)&MakeContext},
  };
  (void)version;
  (void)flags;
  *function = (void*)&Nothing;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; ++i) {
    if (strcmp(name, known[i].name) == 0) *function = known[i].function;
  }
  if (found != NULL) *found = 0;
  return SUCCESS;
}

EXPORT int cuGetProcAddress(const char* name, void** function, int version,
                            unsigned long long flags) {
  return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
EXPORT int cuInit(unsigned flags) { return Init(flags); }
EXPORT int cuDriverGetVersion(int* version) { return DriverGetVersion(version); }
EXPORT int cuGetExportTable(const void** table, const void* id) {
  return GetExportTable(table, id);
}
