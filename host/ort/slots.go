package ort

// APIVersion is the version of ONNX Runtime's C API that the package speaks: the one of
// onnxruntime_go v1.35.0. ONNX Runtime 1.N implements API version N, so 1.29 is the oldest
// runtime that can be used.
const APIVersion = 29

// A slot is the index of a function pointer in OrtApi. ONNX Runtime only appends to that struct,
// so an index holds for every later release. Each constant is "slot" and the function's name in
// the header: the test reads the header and compares.
type slot int

const (
	slotCreateStatus                                        slot = 0
	slotGetErrorCode                                        slot = 1
	slotGetErrorMessage                                     slot = 2
	slotCreateEnv                                           slot = 3
	slotCreateSession                                       slot = 7
	slotCreateSessionFromArray                              slot = 8
	slotRun                                                 slot = 9
	slotCreateSessionOptions                                slot = 10
	slotSetOptimizedModelFilePath                           slot = 11
	slotCloneSessionOptions                                 slot = 12
	slotSetSessionExecutionMode                             slot = 13
	slotEnableProfiling                                     slot = 14
	slotDisableProfiling                                    slot = 15
	slotDisableMemPattern                                   slot = 17
	slotEnableCpuMemArena                                   slot = 18
	slotDisableCpuMemArena                                  slot = 19
	slotSetSessionLogSeverityLevel                          slot = 22
	slotSetSessionGraphOptimizationLevel                    slot = 23
	slotSetIntraOpNumThreads                                slot = 24
	slotSetInterOpNumThreads                                slot = 25
	slotCreateCustomOpDomain                                slot = 26
	slotCustomOpDomain_Add                                  slot = 27
	slotAddCustomOpDomain                                   slot = 28
	slotSessionGetInputCount                                slot = 30
	slotSessionGetOutputCount                               slot = 31
	slotSessionGetInputTypeInfo                             slot = 33
	slotSessionGetOutputTypeInfo                            slot = 34
	slotSessionGetInputName                                 slot = 36
	slotSessionGetOutputName                                slot = 37
	slotCreateRunOptions                                    slot = 39
	slotRunOptionsSetTerminate                              slot = 46
	slotCreateTensorAsOrtValue                              slot = 48
	slotCreateTensorWithDataAsOrtValue                      slot = 49
	slotIsTensor                                            slot = 50
	slotGetTensorMutableData                                slot = 51
	slotFillStringTensor                                    slot = 52
	slotCastTypeInfoToTensorInfo                            slot = 55
	slotGetOnnxTypeFromTypeInfo                             slot = 56
	slotGetTensorElementType                                slot = 60
	slotGetDimensionsCount                                  slot = 61
	slotGetDimensions                                       slot = 62
	slotGetSymbolicDimensions                               slot = 63
	slotGetTensorTypeAndShape                               slot = 65
	slotGetValueType                                        slot = 67
	slotCreateMemoryInfo                                    slot = 68
	slotCreateCpuMemoryInfo                                 slot = 69
	slotMemoryInfoGetId                                     slot = 72
	slotMemoryInfoGetType                                   slot = 74
	slotAllocatorFree                                       slot = 76
	slotAllocatorGetInfo                                    slot = 77
	slotGetAllocatorWithDefaultOptions                      slot = 78
	slotGetValue                                            slot = 80
	slotGetValueCount                                       slot = 81
	slotCreateValue                                         slot = 82
	slotKernelInfoGetAttribute_float                        slot = 85
	slotKernelInfoGetAttribute_int64                        slot = 86
	slotKernelInfoGetAttribute_string                       slot = 87
	slotKernelContext_GetInput                              slot = 90
	slotKernelContext_GetOutput                             slot = 91
	slotReleaseEnv                                          slot = 92
	slotReleaseStatus                                       slot = 93
	slotReleaseMemoryInfo                                   slot = 94
	slotReleaseSession                                      slot = 95
	slotReleaseValue                                        slot = 96
	slotReleaseRunOptions                                   slot = 97
	slotReleaseTypeInfo                                     slot = 98
	slotReleaseTensorTypeAndShapeInfo                       slot = 99
	slotReleaseSessionOptions                               slot = 100
	slotReleaseCustomOpDomain                               slot = 101
	slotAddFreeDimensionOverrideByName                      slot = 124
	slotGetAvailableProviders                               slot = 125
	slotReleaseAvailableProviders                           slot = 126
	slotGetStringTensorElementLength                        slot = 127
	slotGetStringTensorElement                              slot = 128
	slotAddSessionConfigEntry                               slot = 130
	slotCreateAllocator                                     slot = 131
	slotReleaseAllocator                                    slot = 132
	slotCreateAndRegisterAllocator                          slot = 144
	slotAddInitializer                                      slot = 150
	slotRunWithBinding                                      slot = 133
	slotCreateIoBinding                                     slot = 134
	slotReleaseIoBinding                                    slot = 135
	slotBindInput                                           slot = 136
	slotBindOutput                                          slot = 137
	slotBindOutputToDevice                                  slot = 138
	slotGetBoundOutputNames                                 slot = 139
	slotGetBoundOutputValues                                slot = 140
	slotClearBoundInputs                                    slot = 141
	slotSessionOptionsAppendExecutionProvider_CUDA          slot = 152
	slotSessionOptionsAppendExecutionProvider_ROCM          slot = 153
	slotSessionOptionsAppendExecutionProvider_OpenVINO      slot = 154
	slotSessionOptionsAppendExecutionProvider_TensorRT      slot = 159
	slotReleaseArenaCfg                                     slot = 157
	slotCreateArenaCfgV2                                    slot = 164
	slotAddRunConfigEntry                                   slot = 165
	slotKernelInfoGetAttributeArray_float                   slot = 162
	slotKernelInfoGetAttributeArray_int64                   slot = 163
	slotCreatePrepackedWeightsContainer                     slot = 166
	slotReleasePrepackedWeightsContainer                    slot = 167
	slotCreateSessionWithPrepackedWeightsContainer          slot = 168
	slotCreateSessionFromArrayWithPrepackedWeightsContainer slot = 169
	slotSessionOptionsAppendExecutionProvider_TensorRT_V2   slot = 170
	slotRegisterAllocator                                   slot = 176
	slotUnregisterAllocator                                 slot = 177
	slotHasValue                                            slot = 192
	slotGetTensorMemoryInfo                                 slot = 194
	slotSynchronizeBoundInputs                              slot = 202
	slotSynchronizeBoundOutputs                             slot = 203
	slotSessionOptionsAppendExecutionProvider_CUDA_V2       slot = 204
	slotCreateCUDAProviderOptions                           slot = 205
	slotUpdateCUDAProviderOptions                           slot = 206
	slotGetCUDAProviderOptionsAsString                      slot = 207
	slotReleaseCUDAProviderOptions                          slot = 208
	slotSessionOptionsAppendExecutionProvider_MIGraphX      slot = 209
	slotAddExternalInitializers                             slot = 210
	slotSessionOptionsAppendExecutionProvider               slot = 216
	slotSessionOptionsAppendExecutionProvider_CANN          slot = 220
	slotMemoryInfoGetDeviceType                             slot = 225
	slotRegisterCustomOpsLibrary_V2                         slot = 228
	slotCreateAndRegisterAllocatorV2                        slot = 259
	slotRunAsync                                            slot = 260
	slotAddExternalInitializersFromFilesInMemory            slot = 279
	slotGetTensorSizeInBytes                                slot = 318
	slotAllocatorGetStats                                   slot = 319
	slotKernelInfo_GetInputCount                            slot = 230
	slotKernelInfo_GetOutputCount                           slot = 231
	slotKernelInfo_GetOutputName                            slot = 233
	slotKernelInfoGetConstantInput_tensor                   slot = 249
	slotHasSessionConfigEntry                               slot = 237
	slotGetSessionConfigEntry                               slot = 238
	slotSessionOptionsAppendExecutionProvider_Dnnl          slot = 239
	slotSessionOptionsAppendExecutionProvider_OpenVINO_V2   slot = 275
	slotSessionOptionsAppendExecutionProvider_VitisAI       slot = 276
	slotGetModelEditorApi                                   slot = 291
	slotGetCompileApi                                       slot = 294
	slotGetKeyValuePairs                                    slot = 298
	slotReleaseKeyValuePairs                                slot = 300
	slotSessionOptionsAppendExecutionProvider_V2            slot = 304
	slotSessionOptionsSetEpSelectionPolicy                  slot = 305
	slotSessionOptionsSetEpSelectionPolicyDelegate          slot = 306
	slotEpDevice_EpName                                     slot = 312
	slotEpDevice_EpOptions                                  slot = 315
	slotGetSharedAllocator                                  slot = 376
	slotGetSessionOptionsConfigEntries                      slot = 379
)

// An editorSlot is an index in OrtModelEditorApi, the table that GetModelEditorApi returns.
type editorSlot int

const (
	editorCreateSessionFromModel            editorSlot = 14
	editorCreateModelEditorSession          editorSlot = 15
	editorCreateModelEditorSessionFromArray editorSlot = 16
)

// A compileSlot is an index in OrtCompileApi, the table that GetCompileApi returns.
type compileSlot int

const compileCompileModel compileSlot = 8
