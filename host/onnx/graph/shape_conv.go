package graph

import (
	"slices"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

func convRules() map[string]func(*call) {
	rules := map[string]func(*call){
		"Conv":          func(c *call) { c.conv(0, 1, onnx.Tensor_UNDEFINED) },
		"ConvInteger":   func(c *call) { c.conv(0, 1, onnx.Tensor_INT32) },
		"QLinearConv":   func(c *call) { c.conv(0, 3, c.in(7).DType) },
		"ConvTranspose": convTransposeRule,
		"Resize":        resizeRule,
		"Upsample":      resizeRule,
		"LSTM":          func(c *call) { c.recurrent(4) },
		"GRU":           func(c *call) { c.recurrent(3) },
		"RNN":           func(c *call) { c.recurrent(1) },
		"AveragePool":   poolRule,
		"LpPool":        poolRule,
		"MaxPool":       poolRule,
	}
	for _, op := range []string{"GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"} {
		rules[op] = func(c *call) {
			x := c.in(0)
			var axes []int
			for i := 2; i < x.Rank; i++ {
				axes = append(axes, i)
			}
			if x.Rank < 0 {
				c.set(0, unranked(x.DType))
				return
			}
			c.set(0, reduced(x, axes, true, x.DType))
		}
	}
	return rules
}

// window is the number of places a window takes on an axis.
type window struct {
	size, stride, dilation, before, after int64
}

// windows reads the attributes of convolution and pooling for n spatial axes.
// ok is false when they are wrong.
func (c *call) windows(sizes []int64, n int) (list []window, ok bool) {
	if len(sizes) != n {
		return nil, false
	}
	strides, _ := c.n.Ints("strides")
	dilations, _ := c.n.Ints("dilations")
	pads, _ := c.n.Ints("pads")
	list = make([]window, n)
	for i := range list {
		w := window{size: sizes[i], stride: 1, dilation: 1}
		if i < len(strides) {
			w.stride = strides[i]
		}
		if i < len(dilations) {
			w.dilation = dilations[i]
		}
		if len(pads) == 2*n {
			w.before, w.after = pads[i], pads[n+i]
		}
		for _, v := range []int64{w.size, w.stride, w.dilation, w.before + 1, w.after + 1} {
			if v < 1 || v > farAway {
				return nil, false
			}
		}
		list[i] = w
	}
	return list, true
}

// places is how often the window fits on an axis of length d.
func (w window) places(d Dim, pad string, ceil bool) Dim {
	stride := DimInt(w.stride)
	reach := DimInt((w.size-1)*w.dilation + 1)
	var span Dim // the last position at which the window may stand
	switch pad {
	case "SAME_UPPER", "SAME_LOWER":
		return divUp(d, stride)
	case "VALID":
		span = d.sub(reach)
	default:
		span = d.Add(DimInt(w.before)).Add(DimInt(w.after)).sub(reach)
	}
	n, ok := span.Const()
	if !ok {
		q, exact := span.Div(stride)
		if !exact {
			return Dim{}
		}
		return q.Add(DimInt(1))
	}
	if n < 0 {
		return Dim{}
	}
	if !ceil {
		return DimInt(n/w.stride + 1)
	}
	count := (n+w.stride-1)/w.stride + 1
	// The last window must not begin in the padding after the data.
	if have, ok := d.Const(); ok && (count-1)*w.stride >= have+w.before {
		count--
	}
	return DimInt(count)
}

// divUp is d / by rounded up.
func divUp(d, by Dim) Dim {
	n, ok := d.Const()
	k, okK := by.Const()
	if ok && okK && k > 0 && n > 0 {
		return DimInt((n-1)/k + 1)
	}
	q, _ := d.Div(by)
	return q
}

func (c *call) conv(data, weight int, t onnx.Tensor_DataType) {
	x, w := c.in(data), c.in(weight)
	f := like(x, t)
	if x.Rank < 3 {
		c.set(0, unranked(f.DType))
		return
	}
	n := x.Rank - 2
	f.Dims = make([]Dim, x.Rank)
	f.Dims[0], f.Dims[1] = x.Dims[0], w.Dim(0)
	sizes, given := c.n.Ints("kernel_shape")
	if !given && w.Rank == x.Rank {
		sizes, _ = constants(w.Dims[2:])
	}
	if list, ok := c.windows(sizes, n); ok {
		for i, win := range list {
			f.Dims[2+i] = win.places(x.Dims[2+i], c.n.str("auto_pad", "NOTSET"), false)
		}
	}
	c.set(0, f)
}

func poolRule(c *call) {
	x := c.in(0)
	if x.Rank < 3 {
		c.set(0, unranked(x.DType))
		c.set(1, unranked(onnx.Tensor_INT64))
		return
	}
	f := like(x, onnx.Tensor_UNDEFINED)
	f.Dims = make([]Dim, x.Rank)
	copy(f.Dims, x.Dims[:2])
	sizes, _ := c.n.Ints("kernel_shape")
	if list, ok := c.windows(sizes, x.Rank-2); ok {
		for i, win := range list {
			f.Dims[2+i] = win.places(x.Dims[2+i], c.n.str("auto_pad", "NOTSET"), c.n.Int("ceil_mode", 0) != 0)
		}
	}
	c.set(0, f)
	c.set(1, like(f, onnx.Tensor_INT64))
}

func convTransposeRule(c *call) {
	x, w := c.in(0), c.in(1)
	if x.Rank < 3 {
		c.set(0, unranked(x.DType))
		return
	}
	n := x.Rank - 2
	f := like(x, onnx.Tensor_UNDEFINED)
	f.Dims = make([]Dim, x.Rank)
	f.Dims[0], f.Dims[1] = x.Dims[0], w.Dim(1).Mul(DimInt(c.n.Int("group", 1)))
	if want, ok := c.n.Ints("output_shape"); ok && len(want) >= n {
		copy(f.Dims[2:], dimInts(want[len(want)-n:]))
		c.set(0, f)
		return
	}
	sizes, given := c.n.Ints("kernel_shape")
	if !given && w.Rank == x.Rank {
		sizes, _ = constants(w.Dims[2:])
	}
	extra, _ := c.n.Ints("output_padding")
	list, ok := c.windows(sizes, n)
	for i, win := range list {
		d := x.Dims[2+i]
		if pad := c.n.str("auto_pad", "NOTSET"); pad == "SAME_UPPER" || pad == "SAME_LOWER" {
			f.Dims[2+i] = d.Mul(DimInt(win.stride))
			continue
		}
		more := DimInt((win.size-1)*win.dilation + 1)
		if i < len(extra) {
			more = more.Add(DimInt(extra[i]))
		}
		f.Dims[2+i] = d.sub(DimInt(1)).Mul(DimInt(win.stride)).Add(more).
			sub(DimInt(win.before)).sub(DimInt(win.after))
	}
	if !ok {
		copy(f.Dims[2:], make([]Dim, n))
	}
	c.set(0, f)
}

// resizeRule takes sizes where they are known; scales are followed when they
// are whole numbers.
func resizeRule(c *call) {
	x := c.in(0)
	if x.Rank < 0 {
		c.set(0, unranked(x.DType))
		return
	}
	f := shaped(x.DType, make([]Dim, x.Rank)...)
	c.set(0, f)
	axes, given := c.n.Ints("axes")
	if !given {
		for i := range x.Rank {
			axes = append(axes, int64(i))
		}
	}
	sizes := c.in(3).Elems
	scales := c.in(2).Floats
	if c.n.Graph.Opset("") < 11 || c.n.Is("Upsample") {
		scales = c.in(1).Floats
		if a := c.n.Attr("scales"); a != nil {
			for _, v := range a.Floats {
				scales = append(scales, float64(v))
			}
		}
	}
	if c.n.str("keep_aspect_ratio_policy", "stretch") != "stretch" || len(axes) > x.Rank {
		return
	}
	copy(f.Dims, x.Dims)
	for i, n := range axes {
		a, ok := axisOf(n, x.Rank)
		switch {
		case !ok:
			clear(f.Dims)
			return
		case i < len(sizes):
			f.Dims[a] = sizes[i]
		case i < len(scales) && scales[i] == float64(int32(scales[i])):
			f.Dims[a] = x.Dims[a].Mul(DimInt(int64(scales[i])))
		default:
			f.Dims[a] = Dim{}
		}
	}
}

// recurrent is for LSTM, GRU and RNN, whose weights (directions, gates*hidden,
// input) tell the width when no attribute does.
func (c *call) recurrent(gates int64) {
	x, w := c.in(0), c.in(1)
	seq, batch := x.Dim(0), x.Dim(1)
	if c.n.Int("layout", 0) != 0 {
		seq, batch = batch, seq
	}
	directions := DimInt(1)
	if c.n.str("direction", "forward") == "bidirectional" {
		directions = DimInt(2)
	}
	hidden := DimInt(c.n.Int("hidden_size", 0))
	if hidden.Is(0) {
		hidden, _ = w.Dim(1).Div(DimInt(gates))
	}
	y := []Dim{seq, directions, batch, hidden}
	last := []Dim{directions, batch, hidden}
	if c.n.Int("layout", 0) != 0 {
		y = []Dim{batch, seq, directions, hidden}
		last = []Dim{batch, directions, hidden}
	}
	c.set(0, shaped(x.DType, y...))
	for i := 1; i < 3; i++ {
		c.set(i, shaped(x.DType, slices.Clone(last)...))
	}
}
