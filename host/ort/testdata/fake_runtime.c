// A library with the entry point of ONNX Runtime and a version of the test's choice. It has no API
// version at all, and asking an old one (MAY_ASK undefined) is a mistake.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static const void* GetApi(uint32_t version) {
  (void)version;
#ifndef MAY_ASK
  abort();
#endif
  return NULL;
}
static const char* GetVersionString(void) { return VERSION; }
static const struct {
  const void* (*get_api)(uint32_t);
  const char* (*get_version)(void);
} base = {GetApi, GetVersionString};
const void* OrtGetApiBase(void) { return &base; }
