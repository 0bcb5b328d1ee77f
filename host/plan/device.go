package plan

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Device is a device that a session computes on, other than the CPU, and what the loaded plugins have
// for it. A session's tensors stay there: an operator for the CPU would have each of its own copied to the
// host and back, so it takes no part.
type Device struct {
	tensor.Device
	// Operators are those of the plugins' variants for the device, by plugin.
	Operators map[string][]signature.Operator
	// Without says of plugins that have none there why.
	Without map[string]string
}

// lacks says why an operator cannot run on the device, or "". dtype is the type of the tensors that it is
// to take, "" where it is not known. A nil Device is the CPU, where every plugin has all of its operators.
func (d *Device) lacks(m *manifest.Manifest, op *manifest.Operator, dtype any) string {
	if d == nil || len(op.Emits()) == 0 { // nodes of ONNX's own stand anywhere
		return ""
	}
	has, ok := d.Operators[m.Name]
	if !ok {
		if why := d.Without[m.Name]; why != "" {
			return fmt.Sprintf("%s: none for %s: %s", m.Name, d.Kind, why)
		}
		return fmt.Sprintf("%s has no variant for %s", m.Name, d.Kind)
	}
	for _, name := range op.Emits() {
		i := slices.IndexFunc(has, func(o signature.Operator) bool { return o.Name == name })
		if i < 0 {
			return fmt.Sprintf("%s: its variant for %s has no %s, and the CPU's would have its tensors copied to the host "+
				"and back", m.Name, d.Kind, name)
		}
		if t, ok := dtype.(string); ok && tensor.DType(t).Size() > 0 && !has[i].Takes(tensor.DType(t)) {
			return fmt.Sprintf("%s: %s of its variant for %s takes no %s", m.Name, name, d.Kind, t)
		}
	}
	return ""
}

// traffic is a machine on which nothing counts but the bytes that are moved: what is known of a device
// whose times nobody has measured.
var traffic = Machine{Bandwidth: 1, CacheBandwidth: 1, FLOPS: 1e300}

// cost is what an operator is expected to cost in the estimator's terms: a plugin's figures are of the CPU.
func (e *estimator) cost(op *manifest.Operator) manifest.Cost {
	if e.bytesOnly {
		return manifest.Cost{Bandwidth: 1, FLOPS: 1}
	}
	if op.CostInPanels != nil && e.panels {
		return *op.CostInPanels
	}
	return op.Cost
}

// inPanels reports that weights may be laid out in panels: in memory of the host's.
func (o Options) inPanels() bool { return !o.AsTheyLie && o.Device == nil }
