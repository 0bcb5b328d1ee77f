// Compiles where the numbers of slots.h are the places in OrtApi.
#include <onnxruntime_c_api.h>

#include <cstddef>

#include "slots.h"

#define SLOT(name, index) static_assert(offsetof(OrtApi, name) == (index) * sizeof(void*), #name);
GRAFT_CALLED_SLOTS(SLOT)
GRAFT_HOOKED_SLOTS(SLOT)
SLOT(GetSessionOptionsConfigEntries, GRAFT_SLOT_GetSessionOptionsConfigEntries)
