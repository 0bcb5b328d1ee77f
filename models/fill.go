package models

// fill writes the bytes [from, from+len(b)) of the tensor's data into b; both
// ends lie on a value.
func (in *instruction) fill(b []byte, from int64, generators []generator) {
	size := in.parts[0].size()
	_, columns := in.matrix()
	at := from / size
	for len(b) > 0 {
		row, column := at/columns, at%columns
		// Within a row, the part under the value and what is left of it.
		i, r, c := in.locate(row, column)
		p := &in.parts[i]
		n := min(p.columns-c, int64(len(b))/size)
		start := p.offset + r*p.rowStride + c*p.columnStride
		stride := p.columnStride
		if p.columns == 1 && columns == 1 {
			// A vector runs down its only column.
			n = min(p.rows-r, int64(len(b))/size)
			stride = p.rowStride
		}
		generators[i].put(b[:n*size], start, stride)
		b = b[n*size:]
		at += n
	}
}

// locate finds the part that holds (row, column), and row and column within it.
func (in *instruction) locate(row, column int64) (i int, r, c int64) {
	for i = range in.parts {
		p := &in.parts[i]
		switch {
		case in.axis == 0 && row >= p.rows:
			row -= p.rows
		case in.axis == 1 && column >= p.columns:
			column -= p.columns
		default:
			return i, row, column
		}
	}
	panic("models: value outside of an instruction: this is a bug in package models")
}

// generators of the parts, in their order.
func (in *instruction) generators(seed uint64) []generator {
	gs := make([]generator, len(in.parts))
	for i := range in.parts {
		gs[i] = newGenerator(&in.parts[i].parameter, seed)
	}
	return gs
}
