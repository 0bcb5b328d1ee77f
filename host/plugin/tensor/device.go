package tensor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/diagnostic"
)

// ParseDevice reads "cpu", "cuda" or "cuda:NUMBER".
func ParseDevice(text string) (Device, error) {
	kind, number, numbered := strings.Cut(text, ":")
	d := Device{Kind: kind}
	switch {
	case kind == "cpu" && !numbered, kind == "cuda" && !numbered:
		return d, nil
	case kind == "cuda":
		if n, err := strconv.ParseUint(number, 10, 16); err == nil {
			d.Index = int(n)
			return d, nil
		}
	}
	return d, &diagnostic.Error{Found: fmt.Sprintf("found device %q", text), Needed: "cpu, cuda or cuda:NUMBER"}
}

// Device is where a tensor lies or a kernel runs.
type Device struct {
	Kind  string // cpu or cuda
	Index int
}

// CPU is the host's own memory and processors.
var CPU = Device{Kind: "cpu"}

// String is "cpu", or "cuda:0" with the device's number.
func (d Device) String() string {
	if d.Kind == "cpu" || d.Kind == "" {
		return "cpu"
	}
	return fmt.Sprintf("%s:%d", d.Kind, d.Index)
}

func (d Device) ABI() (abi.Device, error) {
	switch d.Kind {
	case "cpu":
		return abi.Device{Type: abi.DeviceCPU, ID: int32(d.Index)}, nil
	case "cuda":
		return abi.Device{Type: abi.DeviceCUDA, ID: int32(d.Index)}, nil
	}
	return abi.Device{}, fmt.Errorf("found device %q, needed cpu or cuda", d.Kind)
}
