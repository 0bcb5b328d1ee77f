package quantization

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/abi"
	"github.com/opgraft/graft/host/decode/engine"
	"github.com/opgraft/graft/host/decode/prepare"
	"github.com/opgraft/graft/host/defaults"
	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/half"
	"github.com/opgraft/graft/host/model/onnx"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Microsoft's domain of operators, and the accuracy levels of MatMulNBits: what is multiplied may be rounded to eight bits, or is float32.
const (
	microsoft     = "com.microsoft"
	accuracyInt8  = 4
	accuracyFloat = 0
)

// matrix is one weight, the linear layers that read it, and what is to become of it.
type matrix struct {
	value          *graph.Value
	transposed     bool // [columns, depth] instead of [depth, columns]
	depth, columns int64
	nodes          []*graph.Node
	last           bool // it makes logits
	as             prepare.WeightType
	activations    prepare.Activations
	group          int64
	off            float64      // Layer.Error
	scales         *graph.Value // nil before it is quantised
}

// bits are those of a weight.
func (m *matrix) bits() int64 {
	if m.as == prepare.Int4Weights {
		return 4
	}
	return 8
}

// groups are those of a column.
func (m *matrix) groups() int64 { return (m.depth + m.group - 1) / m.group }

// rowBytes are those of the integers of a column: whole groups.
func (m *matrix) rowBytes() int64 { return m.groups() * m.group * m.bits() / 8 }

// bytes are those of the weight in a file, its scales included, float32Bytes those that it has now.
func (m *matrix) bytes() int64        { return m.columns * (m.rowBytes() + 4*m.groups()) }
func (m *matrix) float32Bytes() int64 { return 4 * m.depth * m.columns }

// dataOf are a weight's numbers as they lie, valid until the next call.
func (x *export) dataOf(m *matrix) ([]byte, error) {
	if int64(len(x.buffer)) < m.float32Bytes() {
		x.buffer = make([]byte, m.float32Bytes())
	}
	return x.model.DataIn(m.value.Tensor, x.buffer)
}

// quantise lets nodes multiply with a weight's integers, which a plugin makes.
func (x *export) quantise(m *matrix, by *plugin.Plugin, o Options) error {
	fail := func(err error) error { return fmt.Errorf("weights %s: %w", m.value.Name, err) }
	var sum [sha256.Size]byte
	if o.important != nil {
		var err error
		if sum, err = x.sum(m); err != nil {
			return fail(err)
		}
	}
	data, err := x.dataOf(m)
	if err != nil {
		return fail(err)
	}
	panels, scales, err := m.pack(by, data, o.Threads)
	if err != nil {
		return fail(err)
	}
	integers := m.integers(panels)
	floats := m.floats(scales)
	if important := o.important[sum]; important != nil && m.as == prepare.Int4Weights {
		m.weigh(data, integers, floats, important, o.Threads)
	}
	m.off = m.apart(data, integers, floats)
	home := m.value.Graph
	q := home.AddInitializer(&onnx.Tensor{Name: proto.String(m.value.Name + "_quantized"), DataType: proto.Int32(int32(onnx.Tensor_UINT8)),
		Dims: []int64{m.columns, m.groups(), m.group * m.bits() / 8}, RawData: integers})
	raw := make([]byte, 0, 4*len(floats))
	for _, f := range floats {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
	}
	m.scales = home.AddInitializer(&onnx.Tensor{Name: proto.String(m.value.Name + "_scales"), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)),
		Dims: []int64{m.columns * m.groups()}, RawData: raw})
	for _, n := range m.nodes {
		if err := m.stand(n, q); err != nil {
			return fail(err)
		}
	}
	return nil
}

// commit takes what nothing reads any more out of the graph.
func (x *export) commit() error {
	if len(x.chosen) == 0 {
		return nil
	}
	x.graph.ImportOpset(microsoft, 1)
	x.graph.Prune()
	return x.graph.Commit()
}

// pack lets the plugin lay the weight out in panels.
func (m *matrix) pack(by *plugin.Plugin, data []byte, threads int) (panels, scales *tensor.Tensor, err error) {
	attributes := engine.PanelAttributes(m.as, m.group)
	if m.transposed {
		attributes = append(attributes, manifest.Attribute{Name: "transposed", Value: int64(1)})
	}
	k, err := by.Create(defaults.Panels.Name, attributes, nil, tensor.CPU)
	if err != nil {
		return nil, nil, err
	}
	defer k.Destroy()
	in := []*tensor.Tensor{{DType: tensor.Float32, Shape: m.value.Tensor.Dims, Data: unsafe.Pointer(unsafe.SliceData(data))}}
	out, err := k.Infer(in, []bool{true, true})
	if err != nil {
		return nil, nil, err
	}
	for i, t := range out {
		if out[i], err = tensor.New(t.DType, t.Shape...); err != nil {
			return nil, nil, err
		}
	}
	if err := m.expect(out[0], out[1]); err != nil {
		return nil, nil, err
	}
	size, err := k.Workspace(in, out, threads)
	if err != nil {
		return nil, nil, err
	}
	return out[0], out[1], k.Run(&plugin.RunContext{Threads: threads, Workspace: plugin.NewWorkspace(size)}, in, out)
}

// expect refuses panels that are not laid out as they are read here.
func (m *matrix) expect(panels, scales *tensor.Tensor) error {
	if int64(len(panels.Bytes())) != abi.Panels(m.columns)*m.panelBytes() || int64(len(scales.Bytes())) != abi.Panels(m.columns)*m.groups()*abi.PanelColumns*2 {
		return fmt.Errorf("%s gives panels of %s %v and scales of %s %v for %d columns of %d numbers: this is a bug", defaults.Panels.Name, panels.DType, panels.Shape, scales.DType, scales.Shape, m.columns, m.depth)
	}
	return nil
}

// Panels are filled up to this many positions.
const chunk = 32

// panelBytes are those of the integers of a panel.
func (m *matrix) panelBytes() int64 {
	return (m.depth + chunk - 1) / chunk * chunk * abi.PanelColumns * m.bits() / 8
}

// integers are those of MatMulNBits, [columns][groups][group]: unsigned, with 8 or 128 for 0. Of four bits, the one of the even position is the
// lower half of a byte. In a panel 64 bytes are four positions of sixteen columns with eight bits, or eight positions with four: those
// of a column are side by side, and four later positions are the upper halves.
func (m *matrix) integers(panels *tensor.Tensor) []byte {
	row := m.rowBytes()
	out := bytes.Repeat([]byte{0x88}, int(m.columns*row))
	if m.bits() == 8 {
		out = bytes.Repeat([]byte{0x80}, int(m.columns*row))
	}
	from := panels.Bytes()
	line := int64(4 * abi.PanelColumns)
	for column := range m.columns {
		panel := from[column/abi.PanelColumns*m.panelBytes():][:m.panelBytes()]
		at := column % abi.PanelColumns * 4
		to := out[column*row:][:row]
		for ; at < int64(len(panel)) && len(to) > 0; at += line {
			four := panel[at : at+4]
			if m.bits() == 8 {
				for i, q := range four {
					to[i] = q ^ 0x80
				}
			} else {
				to[0], to[1] = four[0]&15|four[1]<<4, four[2]&15|four[3]<<4
				to[2], to[3] = four[0]>>4|four[1]&0xf0, four[2]>>4|four[3]&0xf0
			}
			to = to[4:]
		}
	}
	return out
}

// floats are the scales, [columns][groups], of bfloat16 in panels of sixteen columns.
func (m *matrix) floats(scales *tensor.Tensor) []float32 {
	groups, from := m.groups(), scales.Bytes()
	out := make([]float32, m.columns*groups)
	for column := range m.columns {
		for g := range groups {
			at := ((column/abi.PanelColumns*groups+g)*abi.PanelColumns + column%abi.PanelColumns) * 2
			out[column*groups+g] = float32(half.BFloatToFloat(binary.LittleEndian.Uint16(from[at:])))
		}
	}
	return out
}

// apart is how far the numbers that integers stand for are from the weight.
func (m *matrix) apart(data, integers []byte, scales []float32) float64 {
	var off, all float64
	rowStep, columnStep := m.columns, int64(1)
	if m.transposed {
		rowStep, columnStep = 1, m.depth
	}
	groups, row := m.groups(), m.rowBytes()
	for column := range m.columns {
		from := integers[column*row:][:row]
		for k := range m.depth {
			w := float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*(k*rowStep+column*columnStep):])))
			var q int
			if m.bits() == 8 {
				q = int(from[k]) - 128
			} else {
				q = int(from[k/2]>>(k%2*4)&15) - 8
			}
			d := w - float64(q)*float64(scales[column*groups+k/m.group])
			off += d * d
			all += w * w
		}
	}
	switch share := math.Sqrt(off / all); {
	case all == 0:
		return 0
	case math.IsNaN(share) || math.IsInf(share, 0):
		return math.MaxFloat64
	default:
		return share
	}
}

// stand makes a node the operator that multiplies with the integers. The Gemm's third operand is added after it.
func (m *matrix) stand(n *graph.Node, q *graph.Value) error {
	operands := len(n.In)
	var addend *graph.Value
	if n.Is("Gemm") && operands > 2 {
		addend = n.In[2]
	}
	for i := operands - 1; i > 0; i-- {
		n.SetInput(i, nil)
	}
	n.In = append(n.In[:1], nil, nil)
	n.SetInput(1, q)
	n.SetInput(2, m.scales)
	p := n.Proto
	p.OpType, p.Domain = proto.String("MatMulNBits"), proto.String(microsoft)
	level := int64(accuracyInt8)
	if m.activations == prepare.Float32Activations {
		level = accuracyFloat
	}
	p.Attribute = nil
	for _, a := range []struct {
		name  string
		value int64
	}{{"K", m.depth}, {"N", m.columns}, {"accuracy_level", level}, {"bits", m.bits()}, {"block_size", m.group}} {
		p.Attribute = append(p.Attribute, &onnx.Attribute{Name: proto.String(a.name), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(a.value)})
	}
	if addend == nil {
		return nil
	}
	product := n.Out[0]
	g := n.Graph
	// Whatever read the Gemm reads the sum, and the sum reads the product.
	sum, err := g.AddNode(&onnx.Node{OpType: proto.String("Add")}, []*graph.Value{nil, addend}, []string{g.FreshName(product.Name)})
	if err != nil {
		return err
	}
	g.Replace(product, sum.Out[0])
	sum.SetInput(0, product)
	return nil
}
