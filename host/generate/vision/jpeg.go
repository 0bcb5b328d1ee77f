package vision

import "image"

// fillYCbCr takes the pixels of a JPEG image. Chroma of half the size is spread by a triangle filter, three parts of
// the nearer sample and one of the farther, as libjpeg does and Go's image/jpeg does not. It reports subsampling that
// it does not know.
func (p *picture) fillYCbCr(m *image.YCbCr) bool {
	var across, down int // samples of chroma, in pixels
	switch m.SubsampleRatio {
	case image.YCbCrSubsampleRatio444:
		across, down = 1, 1
	case image.YCbCrSubsampleRatio422:
		across, down = 2, 1
	case image.YCbCrSubsampleRatio420:
		across, down = 2, 2
	case image.YCbCrSubsampleRatio440:
		across, down = 1, 2
	default:
		return false
	}
	cb, cr := make([]int, p.width+1), make([]int, p.width+1)
	columns := make([]int, (p.width+across-1)/across)
	for y := range p.height {
		spread(cb, m.Cb, m.CStride, columns, y, p.height, across, down)
		spread(cr, m.Cr, m.CStride, columns, y, p.height, across, down)
		for x := range p.width {
			rgb(p.pixels[p.at(x, y):], int(m.Y[y*m.YStride+x]), cb[x]-128, cr[x]-128)
		}
	}
	return true
}

// spread is one row of chroma in full size. columns are as many as the plane has.
func spread(row []int, plane []byte, stride int, columns []int, y, height, across, down int) {
	near := y / down
	at := func(i int) []byte { return plane[i*stride : i*stride+len(columns)] }
	if across == 2 && len(columns) <= 2 { // which libjpeg repeats
		for x := range row {
			row[x] = int(at(near)[min(x/across, len(columns)-1)])
		}
		return
	}
	// Samples of this row: as they are, or four times what they are between two rows.
	scale := 1
	if down == 1 {
		for i, v := range at(near) {
			columns[i] = int(v)
		}
	} else {
		far := near + 2*(y%2) - 1
		if rows := (height + down - 1) / down; far < 0 || far >= rows {
			far = near
		}
		a, b := at(near), at(far)
		for i := range columns {
			columns[i] = 3*int(a[i]) + int(b[i])
		}
		scale = 4
	}
	if across == 1 {
		for i, v := range columns {
			row[i] = v
			if scale == 4 {
				row[i] = (v + 1 + y%2) >> 2
			}
		}
		return
	}
	// Odd and even pixels are rounded in turn up and down, so that no row grows brighter.
	shift, even, odd := 2, 1, 2
	if scale == 4 {
		shift, even, odd = 4, 8, 7
	}
	last := len(columns) - 1
	for i, v := range columns {
		left, right := columns[max(i-1, 0)], columns[min(i+1, last)]
		row[2*i] = (3*v + left + even) >> shift
		row[2*i+1] = (3*v + right + odd) >> shift
	}
}

// rgb converts a pixel (ITU-T T.871), rounded to the nearest.
func rgb(out []byte, y, cb, cr int) {
	const half = 1 << 15
	out[0] = clip(y + (91881*cr+half)>>16)
	out[1] = clip(y + (-22554*cb-46802*cr+half)>>16)
	out[2] = clip(y + (116130*cb+half)>>16)
}

func clip(v int) byte { return byte(max(0, min(255, v))) }
