// Package slot has the places of functions in ONNX Runtime's tables.
package slot

// APIVersion is the version of ONNX Runtime's C API that the package speaks: the one of
// onnxruntime_go v1.35.0. ONNX Runtime 1.N implements API version N, so 1.29 is the oldest
// runtime that can be used.
const APIVersion = 29

// A Slot is the index of a function pointer in OrtApi. ONNX Runtime only appends to that struct,
// so an index holds for every later release. Each constant is "slot" and the function's name in
// the header: the test reads the header and compares.
type Slot int

const (
	CreateStatus                                        Slot = 0
	GetErrorCode                                        Slot = 1
	GetErrorMessage                                     Slot = 2
	CreateEnv                                           Slot = 3
	CreateSession                                       Slot = 7
	CreateSessionFromArray                              Slot = 8
	Run                                                 Slot = 9
	CreateSessionOptions                                Slot = 10
	SetOptimizedModelFilePath                           Slot = 11
	CloneSessionOptions                                 Slot = 12
	SetSessionExecutionMode                             Slot = 13
	EnableProfiling                                     Slot = 14
	DisableProfiling                                    Slot = 15
	DisableMemPattern                                   Slot = 17
	EnableCpuMemArena                                   Slot = 18
	DisableCpuMemArena                                  Slot = 19
	SetSessionLogSeverityLevel                          Slot = 22
	SetSessionGraphOptimizationLevel                    Slot = 23
	SetIntraOpNumThreads                                Slot = 24
	SetInterOpNumThreads                                Slot = 25
	CreateCustomOpDomain                                Slot = 26
	CustomOpDomain_Add                                  Slot = 27
	AddCustomOpDomain                                   Slot = 28
	SessionGetInputCount                                Slot = 30
	SessionGetOutputCount                               Slot = 31
	SessionGetInputTypeInfo                             Slot = 33
	SessionGetOutputTypeInfo                            Slot = 34
	SessionGetInputName                                 Slot = 36
	SessionGetOutputName                                Slot = 37
	CreateRunOptions                                    Slot = 39
	RunOptionsSetTerminate                              Slot = 46
	CreateTensorAsOrtValue                              Slot = 48
	CreateTensorWithDataAsOrtValue                      Slot = 49
	IsTensor                                            Slot = 50
	GetTensorMutableData                                Slot = 51
	FillStringTensor                                    Slot = 52
	CastTypeInfoToTensorInfo                            Slot = 55
	GetOnnxTypeFromTypeInfo                             Slot = 56
	GetTensorElementType                                Slot = 60
	GetDimensionsCount                                  Slot = 61
	GetDimensions                                       Slot = 62
	GetSymbolicDimensions                               Slot = 63
	GetTensorTypeAndShape                               Slot = 65
	GetValueType                                        Slot = 67
	CreateMemoryInfo                                    Slot = 68
	CreateCpuMemoryInfo                                 Slot = 69
	MemoryInfoGetId                                     Slot = 72
	MemoryInfoGetType                                   Slot = 74
	AllocatorFree                                       Slot = 76
	AllocatorGetInfo                                    Slot = 77
	GetAllocatorWithDefaultOptions                      Slot = 78
	GetValue                                            Slot = 80
	GetValueCount                                       Slot = 81
	CreateValue                                         Slot = 82
	KernelInfoGetAttribute_float                        Slot = 85
	KernelInfoGetAttribute_int64                        Slot = 86
	KernelInfoGetAttribute_string                       Slot = 87
	KernelContext_GetInput                              Slot = 90
	KernelContext_GetOutput                             Slot = 91
	ReleaseEnv                                          Slot = 92
	ReleaseStatus                                       Slot = 93
	ReleaseMemoryInfo                                   Slot = 94
	ReleaseSession                                      Slot = 95
	ReleaseValue                                        Slot = 96
	ReleaseRunOptions                                   Slot = 97
	ReleaseTypeInfo                                     Slot = 98
	ReleaseTensorTypeAndShapeInfo                       Slot = 99
	ReleaseSessionOptions                               Slot = 100
	ReleaseCustomOpDomain                               Slot = 101
	AddFreeDimensionOverrideByName                      Slot = 124
	GetAvailableProviders                               Slot = 125
	ReleaseAvailableProviders                           Slot = 126
	GetStringTensorElementLength                        Slot = 127
	GetStringTensorElement                              Slot = 128
	AddSessionConfigEntry                               Slot = 130
	CreateAllocator                                     Slot = 131
	ReleaseAllocator                                    Slot = 132
	CreateAndRegisterAllocator                          Slot = 144
	AddInitializer                                      Slot = 150
	RunWithBinding                                      Slot = 133
	CreateIoBinding                                     Slot = 134
	ReleaseIoBinding                                    Slot = 135
	BindInput                                           Slot = 136
	BindOutput                                          Slot = 137
	BindOutputToDevice                                  Slot = 138
	GetBoundOutputNames                                 Slot = 139
	GetBoundOutputValues                                Slot = 140
	ClearBoundInputs                                    Slot = 141
	SessionOptionsAppendExecutionProvider_CUDA          Slot = 152
	SessionOptionsAppendExecutionProvider_ROCM          Slot = 153
	SessionOptionsAppendExecutionProvider_OpenVINO      Slot = 154
	SessionOptionsAppendExecutionProvider_TensorRT      Slot = 159
	ReleaseArenaCfg                                     Slot = 157
	CreateArenaCfgV2                                    Slot = 164
	AddRunConfigEntry                                   Slot = 165
	KernelInfoGetAttributeArray_float                   Slot = 162
	KernelInfoGetAttributeArray_int64                   Slot = 163
	CreatePrepackedWeightsContainer                     Slot = 166
	ReleasePrepackedWeightsContainer                    Slot = 167
	CreateSessionWithPrepackedWeightsContainer          Slot = 168
	CreateSessionFromArrayWithPrepackedWeightsContainer Slot = 169
	SessionOptionsAppendExecutionProvider_TensorRT_V2   Slot = 170
	RegisterAllocator                                   Slot = 176
	UnregisterAllocator                                 Slot = 177
	HasValue                                            Slot = 192
	GetTensorMemoryInfo                                 Slot = 194
	SynchronizeBoundInputs                              Slot = 202
	SynchronizeBoundOutputs                             Slot = 203
	SessionOptionsAppendExecutionProvider_CUDA_V2       Slot = 204
	CreateCUDAProviderOptions                           Slot = 205
	UpdateCUDAProviderOptions                           Slot = 206
	GetCUDAProviderOptionsAsString                      Slot = 207
	ReleaseCUDAProviderOptions                          Slot = 208
	SessionOptionsAppendExecutionProvider_MIGraphX      Slot = 209
	AddExternalInitializers                             Slot = 210
	SessionOptionsAppendExecutionProvider               Slot = 216
	SessionOptionsAppendExecutionProvider_CANN          Slot = 220
	MemoryInfoGetDeviceType                             Slot = 225
	RegisterCustomOpsLibrary_V2                         Slot = 228
	CreateAndRegisterAllocatorV2                        Slot = 259
	RunAsync                                            Slot = 260
	AddExternalInitializersFromFilesInMemory            Slot = 279
	GetTensorSizeInBytes                                Slot = 318
	AllocatorGetStats                                   Slot = 319
	KernelInfo_GetInputCount                            Slot = 230
	KernelInfo_GetOutputCount                           Slot = 231
	KernelInfo_GetOutputName                            Slot = 233
	KernelInfoGetConstantInput_tensor                   Slot = 249
	HasSessionConfigEntry                               Slot = 237
	GetSessionConfigEntry                               Slot = 238
	SessionOptionsAppendExecutionProvider_Dnnl          Slot = 239
	SessionOptionsAppendExecutionProvider_OpenVINO_V2   Slot = 275
	SessionOptionsAppendExecutionProvider_VitisAI       Slot = 276
	GetModelEditorApi                                   Slot = 291
	GetCompileApi                                       Slot = 294
	GetKeyValuePairs                                    Slot = 298
	ReleaseKeyValuePairs                                Slot = 300
	SessionOptionsAppendExecutionProvider_V2            Slot = 304
	SessionOptionsSetEpSelectionPolicy                  Slot = 305
	SessionOptionsSetEpSelectionPolicyDelegate          Slot = 306
	EpDevice_EpName                                     Slot = 312
	EpDevice_EpOptions                                  Slot = 315
	GetSharedAllocator                                  Slot = 376
	GetSessionOptionsConfigEntries                      Slot = 379
)

// An EditorSlot is an index in OrtModelEditorApi, the table that GetModelEditorApi returns.
type EditorSlot int

const (
	EditorCreateSessionFromModel            EditorSlot = 14
	EditorCreateModelEditorSession          EditorSlot = 15
	EditorCreateModelEditorSessionFromArray EditorSlot = 16
)

// A CompileSlot is an index in OrtCompileApi, the table that GetCompileApi returns.
type CompileSlot int

const CompileModel CompileSlot = 8
