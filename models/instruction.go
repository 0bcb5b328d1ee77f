package models

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// seedLocation marks a tensor to be filled: the external_data entry "location".
const seedLocation = "seed"

// entry is one key and value of a tensor's external_data, in the file's order.
type entry struct{ key, value string }

// instruction says how the data of a tensor are made: parts side by side along
// an axis.
//
// In the file it is a list of entries: location "seed"; axis (0 when absent);
// then for each part, beginning with its name, the parameter's name, shape,
// distribution, mean and scale, transpose ("1": rows and columns change places)
// and slice ("axis:start:end", after the transpose).
type instruction struct {
	axis  int
	parts []part
}

// part is a parameter, or a transpose or a slice of one. Seen as a matrix it
// has rows x columns values; the value at (r, c) is the parameter's at index
// offset + r*rowStride + c*columnStride.
type part struct {
	parameter
	rows, columns           int64
	offset                  int64
	rowStride, columnStride int64
}

// rows and columns of the whole tensor.
func (in *instruction) matrix() (rows, columns int64) {
	for i := range in.parts {
		p := &in.parts[i]
		if in.axis == 0 {
			rows, columns = rows+p.rows, p.columns
		} else {
			rows, columns = p.rows, columns+p.columns
		}
	}
	return rows, columns
}

// bytes is the size of the tensor's data.
func (in *instruction) bytes() int64 {
	rows, columns := in.matrix()
	return rows * columns * in.parts[0].size()
}

func parseInstruction(entries []entry) (*instruction, error) {
	in := &instruction{}
	var fields []map[string]string
	for _, e := range entries {
		switch {
		case e.key == "location":
		case e.key == "axis":
			axis, err := strconv.Atoi(e.value)
			if err != nil || axis < 0 || axis > 1 {
				return nil, fmt.Errorf("axis %q: need 0 or 1", e.value)
			}
			in.axis = axis
		case e.key == "name":
			fields = append(fields, map[string]string{"name": e.value})
		case len(fields) == 0:
			return nil, fmt.Errorf("%s stands before the first name", e.key)
		default:
			last := fields[len(fields)-1]
			if _, twice := last[e.key]; twice {
				return nil, fmt.Errorf("%s stands twice for %s", e.key, last["name"])
			}
			last[e.key] = e.value
		}
	}
	if len(fields) == 0 {
		return nil, fmt.Errorf("no parameter is named")
	}
	for _, f := range fields {
		p, err := parsePart(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f["name"], err)
		}
		in.parts = append(in.parts, p)
	}
	return in, in.check()
}

// check sees that the parts fit side by side.
func (in *instruction) check() error {
	first := &in.parts[0]
	for i := range in.parts {
		p := &in.parts[i]
		across, want := p.columns, first.columns
		if in.axis == 1 {
			across, want = p.rows, first.rows
		}
		if across != want || p.size() != first.size() {
			return fmt.Errorf("%s does not fit beside %s along axis %d", p.name, first.name, in.axis)
		}
	}
	return nil
}

func parsePart(fields map[string]string) (part, error) {
	p := part{parameter: parameter{name: fields["name"]}}
	total := int64(1)
	for s := range strings.SplitSeq(fields["shape"], ",") {
		d, err := strconv.ParseInt(s, 10, 64)
		if err != nil || d < 1 || d > math.MaxInt32 || total > math.MaxInt32*8/d {
			return p, fmt.Errorf("shape %q: need positive sizes, separated by commas", fields["shape"])
		}
		total *= d
		p.shape = append(p.shape, d)
	}
	var err error
	if p.distribution, err = parseDistribution(fields["distribution"]); err != nil {
		return p, err
	}
	if p.distribution != randomBytes {
		if p.mean, err = strconv.ParseFloat(fields["mean"], 64); err != nil {
			return p, fmt.Errorf("mean %q: need a number", fields["mean"])
		}
	}
	if p.distribution == normal || p.distribution == uniform {
		if p.scale, err = strconv.ParseFloat(fields["scale"], 64); err != nil || p.scale < 0 {
			return p, fmt.Errorf("scale %q: need a number of at least 0", fields["scale"])
		}
	}
	// A parameter that is neither turned nor cut is a column of values.
	p.rows, p.columns, p.rowStride, p.columnStride = total, 1, 1, 1
	if len(p.shape) == 2 {
		p.rows, p.columns, p.rowStride = p.shape[0], p.shape[1], p.shape[1]
	}
	if t, ok := fields["transpose"]; ok {
		if t != "1" || len(p.shape) != 2 {
			return p, fmt.Errorf("transpose %q of shape %v: need 1 and two dimensions", t, p.shape)
		}
		p.rows, p.columns, p.rowStride, p.columnStride = p.columns, p.rows, p.columnStride, p.rowStride
	}
	if s, ok := fields["slice"]; ok {
		return p, p.cut(s)
	}
	return p, nil
}

// cut selects the rows or columns that a slice "axis:start:end" names.
func (p *part) cut(slice string) error {
	var axis, start, end int64
	if n, err := fmt.Sscanf(slice, "%d:%d:%d", &axis, &start, &end); n != 3 || err != nil {
		return fmt.Errorf("slice %q: need axis:start:end", slice)
	}
	size, stride := &p.rows, p.rowStride
	if axis == 1 {
		size, stride = &p.columns, p.columnStride
	}
	if axis < 0 || axis > 1 || start < 0 || start >= end || end > *size {
		return fmt.Errorf("slice %q lies outside %d x %d", slice, p.rows, p.columns)
	}
	p.offset += start * stride
	*size = end - start
	return nil
}
