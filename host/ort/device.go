package ort

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// A Device is ONNX Runtime's OrtMemoryInfoDeviceType.
type Device int

// The devices.
const (
	DeviceCPU  Device = 0
	DeviceGPU  Device = 1
	DeviceFPGA Device = 2
	DeviceNPU  Device = 3
)

// String is the device's name in lower case.
func (d Device) String() string {
	names := [...]string{"cpu", "gpu", "fpga", "npu"}
	if d < 0 || int(d) >= len(names) {
		return fmt.Sprintf("device %d", int(d))
	}
	return names[d]
}

// A Memory names a kind of memory, an OrtMemoryInfo. It is released when garbage.
type Memory struct {
	native uintptr
}

// Native is the address of the OrtMemoryInfo.
func (m *Memory) Native() uintptr { return m.native }

// Memory names the default memory of a device by ONNX Runtime's allocator name: "Cpu", "Cuda",
// "CudaPinned".
func (l *Library) Memory(allocator string, deviceID int) (*Memory, error) {
	name, err := cmem.CString(allocator)
	if err != nil {
		return nil, err
	}
	const deviceAllocator, memTypeDefault = 0, 0
	m := &Memory{}
	if err := l.Try("CreateMemoryInfo", slot.CreateMemoryInfo, uintptr(unsafe.Pointer(name)), deviceAllocator,
		uintptr(deviceID), memTypeDefault, uintptr(unsafe.Pointer(&m.native))); err != nil {
		return nil, err
	}
	runtime.AddCleanup(m, func(native uintptr) { l.Call(slot.ReleaseMemoryInfo, native) }, m.native)
	return m, nil
}

// environment holds what is made once a library and lives as long as it.
type environment struct {
	mu  sync.Mutex
	env uintptr
	cpu *Memory
}

// cpuMemory is the OrtMemoryInfo of host memory.
func (l *Library) cpuMemory() (uintptr, error) {
	e := &l.environment
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cpu == nil {
		m, err := l.Memory("Cpu", 0)
		if err != nil {
			return 0, err
		}
		e.cpu = m
	}
	return e.cpu.native, nil
}

// Environment is the process's OrtEnv. ONNX Runtime counts references to a single environment, so it is
// shared with other bindings of the process; it is never released, because sessions, ours or
// garbage ones not yet collected, may need it until the end.
func (l *Library) Environment() (uintptr, error) {
	e := &l.environment
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.env == 0 {
		name, err := cmem.CString("graft")
		if err != nil {
			return 0, err
		}
		quiet()
		const warning = 2
		if err := l.Try("CreateEnvWithCustomLogger", slot.CreateEnvWithCustomLogger, logLine(), 0, warning,
			uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&e.env))); err != nil {
			return 0, err
		}
	}
	return e.env, nil
}

// logLine writes a message of ONNX Runtime to the standard error in one line, as the runtime itself does, but for
// colours: names that a model chose are in it.
var logLine = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(_ uintptr, severity int32, category, id, place, message uintptr) {
		level := "VIWEF"[min(max(severity, 0), 4)]
		fmt.Fprintln(os.Stderr, diagnostic.Printable(fmt.Sprintf("[%c:%s:%s, %s] %s", level, cmem.GoString(category),
			cmem.GoString(id), cmem.GoString(place), strings.TrimSpace(cmem.GoString(message)))))
	})
})

// EnvTelemetry is ONNX Runtime's own environment variable. Unless it is "1" when the environment of a process is made,
// official builds report events to their makers' servers, and leave files in the temporary folder.
const EnvTelemetry = "ORT_DISABLE_TELEMETRY"

// quiet switches ONNX Runtime's telemetry off, unless the user says something about it. It has an effect where graft
// makes the environment, and none in a program that made its own before.
func quiet() {
	if _, said := os.LookupEnv(EnvTelemetry); !said {
		_ = os.Setenv(EnvTelemetry, "1") // without it the runtime reports, as it does elsewhere
	}
}

// Device says where a tensor's memory lies.
func (v *Value) Device() (Device, int, error) {
	l := v.library
	var info uintptr
	if err := l.Try("GetTensorMemoryInfo", slot.GetTensorMemoryInfo, v.native,
		uintptr(unsafe.Pointer(&info))); err != nil {
		return 0, 0, err
	}
	var device, id int32
	l.Call(slot.MemoryInfoGetDeviceType, info, uintptr(unsafe.Pointer(&device)))
	if err := l.Try("MemoryInfoGetId", slot.MemoryInfoGetId, info, uintptr(unsafe.Pointer(&id))); err != nil {
		return 0, 0, err
	}
	return Device(device), int(id), nil
}
