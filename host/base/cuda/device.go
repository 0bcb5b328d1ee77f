package cuda

import (
	"encoding/hex"
	"fmt"
	"unsafe"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/diagnostic"
)

// Device is one of the driver's devices. CUDA_VISIBLE_DEVICES says which there are, in which order.
type Device struct {
	driver  *Driver
	ordinal int
	handle  int32
}

// Devices opens the driver and lists its devices. The errors are those of [Open]; a list without error is
// not empty.
func Devices() ([]Device, error) {
	d, err := Open()
	if err != nil {
		return nil, err
	}
	return d.Devices()
}

// GetDevice opens the driver and gives the device of a number, counted from 0.
func GetDevice(ordinal int) (Device, error) {
	d, err := Open()
	if err != nil {
		return Device{}, err
	}
	return d.Device(ordinal)
}

// NumDevices is how many devices there are; 0 comes with an error of kind ErrNoDevice.
func (d *Driver) NumDevices() (int, error) {
	var n int32
	if err := d.call(cuDeviceGetCount, uintptr(unsafe.Pointer(&n))); err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, d.noDevice(nil)
	}
	return int(n), nil
}

// Devices lists all devices.
func (d *Driver) Devices() ([]Device, error) {
	n, err := d.NumDevices()
	if err != nil {
		return nil, err
	}
	list := make([]Device, n)
	for i := range list {
		if list[i], err = d.Device(i); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Device gives the device of a number, counted from 0. One that is not there is an error of kind ErrNoDevice.
func (d *Driver) Device(ordinal int) (Device, error) {
	n, err := d.NumDevices()
	if err != nil {
		return Device{}, err
	}
	if ordinal < 0 || ordinal >= n {
		return Device{}, &diagnostic.Error{Kind: ErrNoDevice, Path: d.path, Found: fmt.Sprintf("found no device %d", ordinal),
			Needed: fmt.Sprintf("0 to %d", n-1)}
	}
	device := Device{driver: d, ordinal: ordinal}
	if err := d.call(cuDeviceGet, uintptr(unsafe.Pointer(&device.handle)), uintptr(ordinal)); err != nil {
		return Device{}, err
	}
	return device, nil
}

// Driver is the driver that the device is of.
func (d Device) Driver() *Driver { return d.driver }

// Ordinal is the device's number, counted from 0.
func (d Device) Ordinal() int { return d.ordinal }

// Name is "NVIDIA H200" for example.
func (d Device) Name() (string, error) {
	var name [256]byte
	if err := d.call(cuDeviceGetName, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)),
		uintptr(d.handle)); err != nil {
		return "", err
	}
	name[len(name)-1] = 0
	return abi.GoString(&name[0]), nil
}

// TotalMem is the device's memory in bytes.
func (d Device) TotalMem() (int64, error) {
	var bytes uint64
	err := d.call(cuDeviceTotalMem, uintptr(unsafe.Pointer(&bytes)), uintptr(d.handle))
	return int64(bytes), err
}

// UUID is the device's, "2d0f3f0c-..."; nvidia-smi writes GPU- or MIG- before it.
func (d Device) UUID() (string, error) {
	var id [16]byte
	if err := d.call(cuDeviceGetUuid, uintptr(unsafe.Pointer(&id[0])), uintptr(d.handle)); err != nil {
		return "", err
	}
	h := hex.EncodeToString(id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:], nil
}

// Attribute is one of the device's properties, in the unit that its constant says.
func (d Device) Attribute(a DeviceAttribute) (int, error) {
	var v int32
	err := d.call(cuDeviceGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(a), uintptr(d.handle))
	return int(v), detail(err, "device attribute %d", int(a))
}

// ComputeCapability is 9, 0 for the architecture that nvcc calls sm_90.
func (d Device) ComputeCapability() (major, minor int, err error) {
	if major, err = d.Attribute(ComputeCapabilityMajor); err != nil {
		return 0, 0, err
	}
	minor, err = d.Attribute(ComputeCapabilityMinor)
	return major, minor, err
}

// DeviceInfo is what one wants to know of a device before work is planned for it.
type DeviceInfo struct {
	Ordinal                     int    `json:"ordinal"`
	Name                        string `json:"name"`
	UUID                        string `json:"uuid"`
	Major                       int    `json:"compute_capability_major"`
	Minor                       int    `json:"compute_capability_minor"`
	TotalMem                    int64  `json:"memory_bytes"`
	Multiprocessors             int    `json:"multiprocessors"`
	L2Cache                     int    `json:"l2_cache_bytes"`
	SharedPerBlock              int    `json:"shared_memory_per_block_bytes"`       // without asking for more
	SharedPerBlockOptin         int    `json:"shared_memory_per_block_optin_bytes"` // Function.SetMaxDynamicSharedSize
	MaxThreadsPerBlock          int    `json:"max_threads_per_block"`
	MaxThreadsPerMultiprocessor int    `json:"max_threads_per_multiprocessor"`
}

// Architecture is the name that nvcc has for the device's compute capability: "sm_90".
func (i DeviceInfo) Architecture() string { return fmt.Sprintf("sm_%d%d", i.Major, i.Minor) }

// Info asks for all of DeviceInfo. It needs no context.
func (d Device) Info() (DeviceInfo, error) {
	i := DeviceInfo{Ordinal: d.ordinal}
	var err error
	if i.Name, err = d.Name(); err != nil {
		return i, err
	}
	if i.UUID, err = d.UUID(); err != nil {
		return i, err
	}
	if i.TotalMem, err = d.TotalMem(); err != nil {
		return i, err
	}
	for _, a := range []struct {
		attribute DeviceAttribute
		value     *int
	}{
		{ComputeCapabilityMajor, &i.Major}, {ComputeCapabilityMinor, &i.Minor},
		{MultiprocessorCount, &i.Multiprocessors}, {L2CacheSize, &i.L2Cache},
		{MaxSharedMemoryPerBlock, &i.SharedPerBlock}, {MaxSharedMemoryPerBlockOptin, &i.SharedPerBlockOptin},
		{MaxThreadsPerBlock, &i.MaxThreadsPerBlock}, {MaxThreadsPerMultiprocessor, &i.MaxThreadsPerMultiprocessor},
	} {
		if *a.value, err = d.Attribute(a.attribute); err != nil {
			return i, err
		}
	}
	return i, nil
}

//go:uintptrescapes
func (d Device) call(e entry, args ...uintptr) error {
	if d.driver == nil {
		return badArgument(entries[e].name, "a Device that is nobody's", "one of Devices or GetDevice")
	}
	return d.driver.call(e, args...)
}

// DeviceAttribute is a CUdevice_attribute.
type DeviceAttribute int

// Properties of a device.
const (
	MaxThreadsPerBlock           DeviceAttribute = 1
	MaxBlockDimX                 DeviceAttribute = 2
	MaxBlockDimY                 DeviceAttribute = 3
	MaxBlockDimZ                 DeviceAttribute = 4
	MaxGridDimX                  DeviceAttribute = 5
	MaxGridDimY                  DeviceAttribute = 6
	MaxGridDimZ                  DeviceAttribute = 7
	MaxSharedMemoryPerBlock      DeviceAttribute = 8 // bytes, without Function.SetMaxDynamicSharedSize
	WarpSize                     DeviceAttribute = 10
	MaxRegistersPerBlock         DeviceAttribute = 12 // of 32 bits
	ClockRate                    DeviceAttribute = 13 // kHz
	MultiprocessorCount          DeviceAttribute = 16
	ComputeMode                  DeviceAttribute = 20 // 0 is shared by processes, 2 prohibited, 3 one process at a time
	ECCEnabled                   DeviceAttribute = 32
	PCIBusID                     DeviceAttribute = 33
	PCIDeviceID                  DeviceAttribute = 34
	MemoryClockRate              DeviceAttribute = 36 // kHz
	GlobalMemoryBusWidth         DeviceAttribute = 37 // bits
	L2CacheSize                  DeviceAttribute = 38 // bytes
	MaxThreadsPerMultiprocessor  DeviceAttribute = 39
	AsyncEngineCount             DeviceAttribute = 40
	PCIDomainID                  DeviceAttribute = 50
	ComputeCapabilityMajor       DeviceAttribute = 75
	ComputeCapabilityMinor       DeviceAttribute = 76
	SharedMemoryPerMultiproc     DeviceAttribute = 81 // bytes
	RegistersPerMultiprocessor   DeviceAttribute = 82 // of 32 bits
	PageableMemoryAccess         DeviceAttribute = 88 // 1 where kernels may read memory that is not pinned
	MaxSharedMemoryPerBlockOptin DeviceAttribute = 97 // bytes, with Function.SetMaxDynamicSharedSize
	MaxBlocksPerMultiprocessor   DeviceAttribute = 106
	ClusterLaunch                DeviceAttribute = 120 // 1 where blocks can form clusters
)
