package sessions

import (
	"fmt"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// ConfigDevice is the session config entry by which a program says on which device a session computes:
// "cpu", "cuda", or "cuda:1" for a device of another number. It is for sessions whose providers cannot be
// seen; the others' are.
const ConfigDevice = "graft.device"

// onDevice are providers that keep tensors on a device for which plugins have no variants.
var onDevice = map[string]bool{
	"TensorrtExecutionProvider": true, "NvTensorRTRTXExecutionProvider": true, "CudaPluginExecutionProvider": true,
	"ROCMExecutionProvider": true, "MIGraphXExecutionProvider": true, "CANNExecutionProvider": true,
	"DmlExecutionProvider": true, "WebGpuExecutionProvider": true, "JsExecutionProvider": true,
}

// deviceOf says where a session computes, by its config entry or its providers. An obstacle is the reason
// why no installed plugin can.
func deviceOf(r session.Request) (d tensor.Device, obstacle string, err error) {
	if text, ok := r.Config(ConfigDevice); ok {
		if d, err = tensor.ParseDevice(text); err != nil {
			err = fmt.Errorf("session config entry %s: %w", ConfigDevice, err)
		}
		return d, "", err
	}
	d, obstacle = deviceFor(r.Appended())
	return d, obstacle, nil
}

func deviceFor(appended []ort.Appended, automatic bool) (d tensor.Device, obstacle string) {
	const say = "; the session config entry " + ConfigDevice + " can say where it computes"
	for _, p := range appended {
		switch {
		case p.Name == ort.CUDA:
			return tensor.Device{Kind: "cuda", Index: p.Device}, ""
		case onDevice[p.Name]:
			return d, "its tensors lie with " + p.Name + ", for which plugins have no operators" + say
		}
	}
	if automatic {
		return d, "ONNX Runtime chooses its providers" + say
	}
	return tensor.CPU, ""
}
