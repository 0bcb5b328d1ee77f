package cuda

// entry names one of the driver's functions.
type entry int

// The order is that of entries.
const (
	cuInit entry = iota
	cuGetErrorName
	cuGetErrorString
	cuDeviceGetCount
	cuDeviceGet
	cuDeviceGetName
	cuDeviceTotalMem
	cuDeviceGetAttribute
	cuDeviceGetUuid
	cuDevicePrimaryCtxRetain
	cuDevicePrimaryCtxRelease
	cuCtxPushCurrent
	cuCtxPopCurrent
	cuCtxGetCurrent
	cuCtxSynchronize
	cuMemAlloc
	cuMemFree
	cuMemGetInfo
	cuMemHostAlloc
	cuMemFreeHost
	cuMemcpyHtoD
	cuMemcpyDtoH
	cuMemcpyDtoD
	cuMemcpyHtoDAsync
	cuMemcpyDtoHAsync
	cuMemcpyDtoDAsync
	cuMemsetD8
	cuMemsetD32
	cuMemsetD8Async
	cuMemsetD32Async
	cuStreamCreate
	cuStreamDestroy
	cuStreamSynchronize
	cuStreamQuery
	cuStreamWaitEvent
	cuEventCreate
	cuEventDestroy
	cuEventRecord
	cuEventSynchronize
	cuEventQuery
	cuEventElapsedTime
	cuModuleLoadDataEx
	cuModuleUnload
	cuModuleGetFunction
	cuModuleGetGlobal
	cuFuncGetAttribute
	cuFuncSetAttribute
	cuFuncGetParamInfo
	cuLaunchKernel
	cuOccupancyMaxActiveBlocksPerMultiprocessor
	cuOccupancyMaxPotentialBlockSize

	numEntries int = iota
)

// entries hold each function's name and the CUDA version in which the form called here appeared. The
// driver has every older form of a function that changed (cuMemAlloc took 32 bits before CUDA 3.2, its
// symbol since is cuMemAlloc_v2) and finds the right one by name and version; a symbol looked up by its
// bare name would be the oldest.
var entries = [numEntries]struct {
	name  string
	since Version
}{
	cuInit:                    {"cuInit", 2000},
	cuGetErrorName:            {"cuGetErrorName", 6000},
	cuGetErrorString:          {"cuGetErrorString", 6000},
	cuDeviceGetCount:          {"cuDeviceGetCount", 2000},
	cuDeviceGet:               {"cuDeviceGet", 2000},
	cuDeviceGetName:           {"cuDeviceGetName", 2000},
	cuDeviceTotalMem:          {"cuDeviceTotalMem", 3020},
	cuDeviceGetAttribute:      {"cuDeviceGetAttribute", 2000},
	cuDeviceGetUuid:           {"cuDeviceGetUuid", 11040},
	cuDevicePrimaryCtxRetain:  {"cuDevicePrimaryCtxRetain", 7000},
	cuDevicePrimaryCtxRelease: {"cuDevicePrimaryCtxRelease", 11000},
	cuCtxPushCurrent:          {"cuCtxPushCurrent", 4000},
	cuCtxPopCurrent:           {"cuCtxPopCurrent", 4000},
	cuCtxGetCurrent:           {"cuCtxGetCurrent", 4000},
	cuCtxSynchronize:          {"cuCtxSynchronize", 2000},
	cuMemAlloc:                {"cuMemAlloc", 3020},
	cuMemFree:                 {"cuMemFree", 3020},
	cuMemGetInfo:              {"cuMemGetInfo", 3020},
	cuMemHostAlloc:            {"cuMemHostAlloc", 2020},
	cuMemFreeHost:             {"cuMemFreeHost", 2000},
	cuMemcpyHtoD:              {"cuMemcpyHtoD", 3020},
	cuMemcpyDtoH:              {"cuMemcpyDtoH", 3020},
	cuMemcpyDtoD:              {"cuMemcpyDtoD", 3020},
	cuMemcpyHtoDAsync:         {"cuMemcpyHtoDAsync", 3020},
	cuMemcpyDtoHAsync:         {"cuMemcpyDtoHAsync", 3020},
	cuMemcpyDtoDAsync:         {"cuMemcpyDtoDAsync", 3020},
	cuMemsetD8:                {"cuMemsetD8", 3020},
	cuMemsetD32:               {"cuMemsetD32", 3020},
	cuMemsetD8Async:           {"cuMemsetD8Async", 3020},
	cuMemsetD32Async:          {"cuMemsetD32Async", 3020},
	cuStreamCreate:            {"cuStreamCreate", 2000},
	cuStreamDestroy:           {"cuStreamDestroy", 4000},
	cuStreamSynchronize:       {"cuStreamSynchronize", 2000},
	cuStreamQuery:             {"cuStreamQuery", 2000},
	cuStreamWaitEvent:         {"cuStreamWaitEvent", 3020},
	cuEventCreate:             {"cuEventCreate", 2000},
	cuEventDestroy:            {"cuEventDestroy", 4000},
	cuEventRecord:             {"cuEventRecord", 2000},
	cuEventSynchronize:        {"cuEventSynchronize", 2000},
	cuEventQuery:              {"cuEventQuery", 2000},
	cuEventElapsedTime:        {"cuEventElapsedTime", 12080},
	cuModuleLoadDataEx:        {"cuModuleLoadDataEx", 2010},
	cuModuleUnload:            {"cuModuleUnload", 2000},
	cuModuleGetFunction:       {"cuModuleGetFunction", 2000},
	cuModuleGetGlobal:         {"cuModuleGetGlobal", 3020},
	cuFuncGetAttribute:        {"cuFuncGetAttribute", 2020},
	cuFuncSetAttribute:        {"cuFuncSetAttribute", 9000},
	cuFuncGetParamInfo:        {"cuFuncGetParamInfo", 12040},
	cuLaunchKernel:            {"cuLaunchKernel", 4000},
	cuOccupancyMaxActiveBlocksPerMultiprocessor: {"cuOccupancyMaxActiveBlocksPerMultiprocessor", 6050},
	cuOccupancyMaxPotentialBlockSize:            {"cuOccupancyMaxPotentialBlockSize", 6050},
}
