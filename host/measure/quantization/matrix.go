package quantization

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/half"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Microsoft's domain of operators, and the accuracy levels of MatMulNBits: what is multiplied may be rounded to eight
// bits, or is float32.
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
	weights        prepare.Weights // what was asked for, of all
	group          int64
	off            float64      // Layer.Error
	scales         *graph.Value // nil before it is quantised
}

// rounded is a weight of integers, as MatMulNBits has them.
type rounded struct {
	integers []byte    // [columns][groups][group], without a sign, packed
	scales   []float32 // [columns][groups]
	zeros    []uint8   // [columns][groups], without a sign; nil where weights are symmetric
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

// asymmetric says whether it has zero points.
func (m *matrix) asymmetric() bool { return m.weights.Asymmetric(m.as) }

// zeroBytes are those of the zero points of a column: whole bytes.
func (m *matrix) zeroBytes() int64 {
	if !m.asymmetric() {
		return 0
	}
	return (m.groups()*m.bits() + 7) / 8
}

// bytes are those of the weight in a file, its scales and zero points included, float32Bytes those that it has now.
func (m *matrix) bytes() int64        { return m.columns * (m.rowBytes() + 4*m.groups() + m.zeroBytes()) }
func (m *matrix) float32Bytes() int64 { return 4 * m.depth * m.columns }

// dataOf are a weight's numbers as stored, valid until the next call.
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
	r, data, err := x.round(m, sum, by, o)
	if err != nil {
		return fail(err)
	}
	m.off = m.apart(data, r)
	home := m.value.Graph
	q := home.AddInitializer(
		&onnx.Tensor{Name: proto.String(m.value.Name + "_quantized"), DataType: proto.Int32(int32(onnx.Tensor_UINT8)),
			Dims: []int64{m.columns, m.groups(), m.group * m.bits() / 8}, RawData: r.integers})
	raw := make([]byte, 0, 4*len(r.scales))
	for _, f := range r.scales {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
	}
	m.scales = home.AddInitializer(
		&onnx.Tensor{Name: proto.String(m.value.Name + "_scales"), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)),
			Dims: []int64{m.columns * m.groups()}, RawData: raw})
	var zeros *graph.Value
	if r.zeros != nil {
		zeros = home.AddInitializer(
			&onnx.Tensor{Name: proto.String(m.value.Name + "_zero_points"), DataType: proto.Int32(int32(onnx.Tensor_UINT8)),
				Dims: []int64{m.columns * m.zeroBytes()}, RawData: m.packZeros(r.zeros)})
	}
	for _, n := range m.nodes {
		if err := m.stand(n, q, zeros); err != nil {
			return fail(err)
		}
	}
	return nil
}

// round makes the integers of a weight as they are written, those of four bits by texts, where there are any. The
// weight's numbers are valid until the next call.
func (x *export) round(m *matrix, sum [sha256.Size]byte, by *plugin.Plugin, o Options) (r *rounded, data []byte,
	err error) {
	if data, err = x.dataOf(m); err != nil {
		return nil, nil, err
	}
	if r, err = m.round(by, data, o.Threads); err != nil {
		return nil, nil, err
	}
	if important := o.important[sum]; important != nil && m.as == prepare.Int4Weights {
		m.weigh(data, r, important, o.Threads)
	}
	return r, data, nil
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

// round lets the plugin make integers of the weight.
func (m *matrix) round(by *plugin.Plugin, data []byte, threads int) (*rounded, error) {
	out, err := m.pack(by, data, threads)
	if err != nil {
		return nil, err
	}
	r := &rounded{integers: m.integers(out[0]), scales: make([]float32, m.columns*m.groups())}
	m.each(func(to, from int64) {
		r.scales[to] = float32(half.BFloatToFloat(binary.LittleEndian.Uint16(out[1].Bytes()[2*from:])))
	})
	if m.asymmetric() {
		r.zeros = make([]uint8, m.columns*m.groups())
		middle := byte(1) << (m.bits() - 1)
		m.each(func(to, from int64) { r.zeros[to] = out[2].Bytes()[from] + middle })
	}
	return r, nil
}

// pack lets the plugin lay the weight out: panels, scales and, where it is asymmetric, zero points.
func (m *matrix) pack(by *plugin.Plugin, data []byte, threads int) (out []*tensor.Tensor, err error) {
	attributes := engine.PanelAttributes(m.as, m.weights)
	if m.transposed {
		attributes = append(attributes, manifest.Attribute{Name: "transposed", Value: int64(1)})
	}
	k, err := by.Create(by.Manifest.Providing(capability.PackPanels).Name, attributes, nil, tensor.CPU)
	if err != nil {
		return nil, err
	}
	defer k.Destroy()
	in := []*tensor.Tensor{{DType: tensor.Float32, Shape: m.value.Tensor.Dims,
		Data: unsafe.Pointer(unsafe.SliceData(data))}}
	wanted := []bool{true, true}
	if m.asymmetric() {
		wanted = append(wanted, true)
	}
	if out, err = k.Infer(in, wanted); err != nil {
		return nil, err
	}
	for i, t := range out {
		if out[i], err = tensor.New(t.DType, t.Shape...); err != nil {
			return nil, err
		}
	}
	if err := m.expect(out); err != nil {
		return nil, err
	}
	size, err := k.Workspace(in, out, threads)
	if err != nil {
		return nil, err
	}
	return out, k.Run(&plugin.RunContext{Threads: threads, Workspace: plugin.NewWorkspace(size)}, in, out)
}

// expect refuses panels, scales and zero points that are not laid out as they are read here.
func (m *matrix) expect(out []*tensor.Tensor) error {
	numbers := abi.Panels(m.columns) * m.groups() * abi.PanelColumns
	for i, needed := range []int64{abi.Panels(m.columns) * m.panelBytes(), 2 * numbers, numbers}[:len(out)] {
		if found := int64(len(out[i].Bytes())); found != needed {
			return fmt.Errorf("%s gives %d bytes of output %d, needed are %d for %d columns of %d numbers: this is a bug",
				capability.PackPanels, found, i, needed, m.columns, m.depth)
		}
	}
	return nil
}

// Panels are filled up to this many positions.
const chunk = 32

// panelBytes are those of the integers of a panel.
func (m *matrix) panelBytes() int64 {
	return (m.depth + chunk - 1) / chunk * chunk * abi.PanelColumns * m.bits() / 8
}

// integers are those of MatMulNBits, [columns][groups][group]: unsigned, with 8 or 128 for 0. Of four bits, the one
// of the even position is the lower half of a byte. In a panel 64 bytes are four positions of sixteen columns with
// eight bits, or eight positions with four: those of a column are side by side, and four later positions are the
// upper halves.
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

// each tells of every group of every column where it lies in [columns][groups], and where in panels of sixteen columns.
func (m *matrix) each(f func(to, from int64)) {
	groups := m.groups()
	for column := range m.columns {
		for g := range groups {
			f(column*groups+g, (column/abi.PanelColumns*groups+g)*abi.PanelColumns+column%abi.PanelColumns)
		}
	}
}

// packZeros are zero points as MatMulNBits has them, each column from a byte of its own on: of four bits, the one of
// the even group is the lower half of a byte.
func (m *matrix) packZeros(zeros []uint8) []byte {
	if m.bits() == 8 {
		return zeros
	}
	groups, row := m.groups(), m.zeroBytes()
	out := make([]byte, m.columns*row)
	for i, z := range zeros {
		column, g := int64(i)/groups, int64(i)%groups
		out[column*row+g/2] |= z << (g % 2 * 4)
	}
	return out
}

// middle is the integer that stands for 0 in a group of a column.
func (m *matrix) middle(r *rounded, at int64) int {
	if r.zeros != nil {
		return int(r.zeros[at])
	}
	return 1 << (m.bits() - 1)
}

// plain are the numbers of a column of the weight.
func (m *matrix) plain(data []byte, column int64, to []float32) {
	from, step := column, m.columns
	if m.transposed {
		from, step = column*m.depth, 1
	}
	for k := range to {
		to[k] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*(from+int64(k)*step):]))
	}
}

// values are the numbers that the integers of a column stand for.
func (m *matrix) values(r *rounded, column int64, to []float32) {
	from := r.integers[column*m.rowBytes():]
	four := m.bits() == 4
	for g := range m.groups() {
		scale, middle := r.scales[column*m.groups()+g], m.middle(r, column*m.groups()+g)
		for k := g * m.group; k < min((g+1)*m.group, m.depth); k++ {
			q := 0
			if four {
				q = int(from[k/2] >> (k % 2 * 4) & 15)
			} else {
				q = int(from[k])
			}
			to[k] = float32(q-middle) * scale
		}
	}
}

// apart is how far the numbers that integers stand for are from the weight.
func (m *matrix) apart(data []byte, r *rounded) float64 {
	var off, all float64
	want, got := make([]float32, m.depth), make([]float32, m.depth)
	for column := range m.columns {
		m.plain(data, column, want)
		m.values(r, column, got)
		for k, w := range want {
			d := float64(w) - float64(got[k])
			off += d * d
			all += float64(w) * float64(w)
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
func (m *matrix) stand(n *graph.Node, q, zeros *graph.Value) error {
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
	if zeros != nil {
		n.In = append(n.In, nil)
		n.SetInput(3, zeros)
	}
	p := n.Proto
	p.OpType, p.Domain = proto.String("MatMulNBits"), proto.String(microsoft)
	level := int64(accuracyInt8)
	if m.weights.Activations == prepare.Float32Activations {
		level = accuracyFloat
	}
	p.Attribute = nil
	for _, a := range []struct {
		name  string
		value int64
	}{{"K", m.depth}, {"N", m.columns}, {"accuracy_level", level}, {"bits", m.bits()}, {"block_size", m.group}} {
		p.Attribute = append(p.Attribute,
			&onnx.Attribute{Name: proto.String(a.name), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(a.value)})
	}
	if addend == nil {
		return nil
	}
	product := n.Out[0]
	g := n.Graph
	// Whatever read the Gemm reads the sum, and the sum reads the product.
	sum, err := g.AddNode(&onnx.Node{OpType: proto.String("Add")}, []*graph.Value{nil, addend},
		[]string{g.FreshName(product.Name)})
	if err != nil {
		return err
	}
	g.Replace(product, sum.Out[0])
	sum.SetInput(0, product)
	return nil
}
