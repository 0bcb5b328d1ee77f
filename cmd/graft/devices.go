package main

import (
	"errors"
	"fmt"

	"github.com/opgraft/graft/host/base/diagnostic"

	"github.com/opgraft/graft/host/base/cuda"
)

// foundDevice is an accelerator, or what is wrong with the driver of one.
type foundDevice struct {
	Kind    string `json:"kind"`
	Detail  string `json:"detail,omitempty"`
	CUDA    string `json:"cuda,omitempty"` // the newest that the driver supports
	Problem string `json:"problem,omitempty"`

	*cuda.DeviceInfo
}

// String is the device's line.
func (f foundDevice) String() string {
	if f.Problem != "" {
		return fmt.Sprintf("--  %s: %s", f.Kind, f.Problem)
	}
	return fmt.Sprintf("ok  %s:%d %s", f.Kind, f.Ordinal, f.Detail)
}

// findDevices asks the drivers of accelerators, which a machine need not have.
func (d *diagnosis) findDevices() {
	d.Devices = []foundDevice{}
	devices, err := cuda.Devices()
	if errors.Is(err, cuda.ErrNoDriver) && !cuda.Expected() {
		return
	}
	for _, device := range devices {
		var info cuda.DeviceInfo
		if info, err = device.Info(); err != nil {
			break
		}
		version := device.Driver().Version().String()
		detail := fmt.Sprintf("%s, %s, %.1f GiB, %d multiprocessors, driver for CUDA %s",
			info.Name, info.Architecture(), float64(info.TotalMem)/(1<<30), info.Multiprocessors, version)
		d.Devices = append(d.Devices, foundDevice{Kind: "cuda", Detail: detail, CUDA: version, DeviceInfo: &info})
	}
	if err != nil {
		problem := err.Error()
		if e := (*diagnostic.Error)(nil); errors.As(err, &e) {
			d.advise(e.Fix)
			without := *e
			without.Fix = ""
			problem = without.Error()
		}
		d.Devices = append(d.Devices, foundDevice{Kind: "cuda", Problem: problem})
	}
}
