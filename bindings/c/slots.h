// What libgraft uses of ONNX Runtime's table of functions: the index of each function in OrtApi.
// The table is only ever appended to, so an index holds for every later release.
#ifndef GRAFT_C_SLOTS_H_
#define GRAFT_C_SLOTS_H_

// Functions that are called.
#define GRAFT_CALLED_SLOTS(X)           \
  X(CreateStatus, 0)                    \
  X(GetErrorCode, 1)                    \
  X(GetErrorMessage, 2)                 \
  X(SetOptimizedModelFilePath, 11)      \
  X(DisableProfiling, 15)               \
  X(SetSessionLogSeverityLevel, 22)     \
  X(SetIntraOpNumThreads, 24)           \
  X(CreateCustomOpDomain, 26)           \
  X(AddCustomOpDomain, 28)              \
  X(CreateTensorWithDataAsOrtValue, 49) \
  X(IsTensor, 50)                       \
  X(GetTensorMutableData, 51)           \
  X(GetTensorElementType, 60)           \
  X(GetTensorShapeElementCount, 64)     \
  X(GetTensorTypeAndShape, 65)          \
  X(CreateCpuMemoryInfo, 69)            \
  X(AllocatorFree, 76)                  \
  X(GetAllocatorWithDefaultOptions, 78) \
  X(ReleaseStatus, 93)                  \
  X(ReleaseMemoryInfo, 94)              \
  X(ReleaseValue, 96)                   \
  X(ReleaseTensorTypeAndShapeInfo, 99)  \
  X(ReleaseCustomOpDomain, 101)         \
  X(AddSessionConfigEntry, 130)         \
  X(GetBoundOutputValues, 140)          \
  X(RegisterCustomOpsLibrary_V2, 228)   \
  X(HasSessionConfigEntry, 237)         \
  X(GetSessionConfigEntry, 238)         \
  X(GetKeyValuePairs, 298)              \
  X(ReleaseKeyValuePairs, 300)          \
  X(EpDevice_EpName, 312)

// Functions in whose place libgraft's stand.
#define GRAFT_HOOKED_SLOTS(X)                                 \
  X(CreateSession, 7)                                         \
  X(CreateSessionFromArray, 8)                                \
  X(Run, 9)                                                   \
  X(CreateSessionOptions, 10)                                 \
  X(CloneSessionOptions, 12)                                  \
  X(ReleaseSession, 95)                                       \
  X(ReleaseSessionOptions, 100)                               \
  X(RunWithBinding, 133)                                      \
  X(CreateIoBinding, 134)                                     \
  X(ReleaseIoBinding, 135)                                    \
  X(BindInput, 136)                                           \
  X(ClearBoundInputs, 141)                                    \
  X(AddInitializer, 150)                                      \
  X(SessionOptionsAppendExecutionProvider_CUDA, 152)          \
  X(SessionOptionsAppendExecutionProvider_ROCM, 153)          \
  X(SessionOptionsAppendExecutionProvider_OpenVINO, 154)      \
  X(SessionOptionsAppendExecutionProvider_TensorRT, 159)      \
  X(CreateSessionWithPrepackedWeightsContainer, 168)          \
  X(CreateSessionFromArrayWithPrepackedWeightsContainer, 169) \
  X(SessionOptionsAppendExecutionProvider_TensorRT_V2, 170)   \
  X(SessionOptionsAppendExecutionProvider_CUDA_V2, 204)       \
  X(SessionOptionsAppendExecutionProvider_MIGraphX, 209)      \
  X(AddExternalInitializers, 210)                             \
  X(SessionOptionsAppendExecutionProvider, 216)               \
  X(SessionOptionsAppendExecutionProvider_CANN, 220)          \
  X(SessionOptionsAppendExecutionProvider_Dnnl, 239)          \
  X(RunAsync, 260)                                            \
  X(SessionOptionsAppendExecutionProvider_OpenVINO_V2, 275)   \
  X(SessionOptionsAppendExecutionProvider_VitisAI, 276)       \
  X(AddExternalInitializersFromFilesInMemory, 279)            \
  X(SessionOptionsAppendExecutionProvider_V2, 304)            \
  X(SessionOptionsSetEpSelectionPolicy, 305)                  \
  X(SessionOptionsSetEpSelectionPolicyDelegate, 306)

// A function of API 23; all others are in the oldest runtime that is patched.
#define GRAFT_SLOT_GetSessionOptionsConfigEntries 379

#define GRAFT_OLDEST_API 22
// The newest runtime of which is known that it copies what AddExternalInitializers is given. Memory
// is kept as long as a session of a newer one is there. tests/languages checks each runtime it has.
#ifndef GRAFT_COPYING_API  // tests have it lower
#define GRAFT_COPYING_API 32
#endif

#endif  // GRAFT_C_SLOTS_H_
