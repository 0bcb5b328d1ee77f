package vision

import (
	"fmt"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
)

// File makes the pixel values of a PNG or JPEG file, in the shape of Shape. It is for concurrent use. Errors are of
// type [*diagnostic.Error] or about a file that cannot be read.
func (p *Processor) File(path string) ([]float32, error) {
	data, err := storage.ReadRegular(path, maxFile)
	if err != nil {
		return nil, err
	}
	return p.values(path, data, maxImage)
}

// values are those of an image file's content, an image of at most so many pixels at every step.
func (p *Processor) values(path string, data []byte, most int) ([]float32, error) {
	image, err := read(path, data, most)
	if err != nil {
		return nil, err
	}
	if image, err = p.shaped(path, image, most); err != nil {
		return nil, err
	}
	if int64(image.height) != p.shape[2] || int64(image.width) != p.shape[3] {
		return nil, &diagnostic.Error{Path: path,
			Found:  fmt.Sprintf("processed it has %d by %d pixels (height by width)", image.height, image.width),
			Needed: fmt.Sprintf("%d by %d, which the model reads", p.shape[2], p.shape[3]),
			Fix:    "give an image of that size, or let " + ConfigFile + " resize it"}
	}
	return p.scaled(image), nil
}

// shaped is an image in the model's size, as the class of image processor brings it there.
func (p *Processor) shaped(path string, image *picture, most int) (*picture, error) {
	height, width := p.Size.Height, p.Size.Width
	if p.Align && (width < height && image.width > image.height || width > height && image.width < image.height) {
		image = image.turned()
	}
	possible := func(h, w int, when string) error {
		if h < 1 || w < 1 || w > most/h {
			return &diagnostic.Error{Path: path,
				Found:  fmt.Sprintf("resized it would have %d by %d pixels (height by width)%s", h, w, when),
				Needed: fmt.Sprintf("1 to %d in all", most), Fix: "cut it into parts that are less long"}
		}
		return nil
	}
	if p.Resize {
		edge := 0
		switch {
		case p.kind == donut:
			edge = min(height, width)
		case p.kind == clips && p.Size.Shortest > 0:
			edge = p.Size.Shortest
		}
		if edge > 0 { // the shorter edge; the longer in proportion
			height, width = edge, int(float64(edge*image.width)/float64(image.height))
			if image.width <= image.height {
				height, width = int(float64(edge*image.height)/float64(image.width)), edge
			}
		}
		if err := possible(height, width, ""); err != nil {
			return nil, err
		}
		if err := possible(image.height, width, " on the way"); err != nil { // first across
			return nil, err
		}
		image = image.resize(width, height, p.Resample, span{0, float64(image.width)}, span{0, float64(image.height)})
	}
	if p.Thumbnail {
		h, w := image.within(p.Size.Height, p.Size.Width)
		if err := possible(h, w, ""); err != nil {
			return nil, err
		}
		image = image.thumbnail(h, w)
	}
	if p.Pad {
		if image.height > p.Size.Height || image.width > p.Size.Width {
			return nil, &diagnostic.Error{Path: path,
				Found:  fmt.Sprintf("processed it has %d by %d pixels (height by width)", image.height, image.width),
				Needed: fmt.Sprintf("at most %d by %d, up to which it is filled", p.Size.Height, p.Size.Width),
				Fix:    "let " + ConfigFile + " make it smaller (do_thumbnail)"}
		}
		image = image.placed(p.Size.Height, p.Size.Width, (p.Size.Height-image.height)/2, (p.Size.Width-image.width)/2)
	}
	if p.Crop {
		image = image.cropped(p.CropSize.Height, p.CropSize.Width)
	}
	return image, nil
}

// turned is an image turned by a quarter, clockwise.
func (p *picture) turned() *picture {
	out := newPicture(p.height, p.width)
	out.each(func(x, y int) [3]byte { return [3]byte(p.pixels[p.at(y, p.height-1-x):]) })
	return out
}

// within is the size of an image's thumbnail, no edge of which is longer than asked for, as DonutImageProcessor has it.
func (p *picture) within(height, width int) (h, w int) {
	h, w = min(p.height, height), min(p.width, width)
	switch {
	case h == p.height && w == p.width:
	case p.height > p.width:
		w = int(float64(p.width*h) / float64(p.height))
	case p.width > p.height:
		h = int(float64(p.height*w) / float64(p.width))
	}
	return h, w
}

// thumbnail is an image of another size: bicubic, and in two steps where it shrinks by four or more.
func (p *picture) thumbnail(height, width int) *picture {
	if height == p.height && width == p.width {
		return p
	}
	const gap = 2.0
	across, down := span{0, float64(p.width)}, span{0, float64(p.height)}
	x, y := max(1, int(across.to/float64(width)/gap)), max(1, int(down.to/float64(height)/gap))
	if x > 1 || y > 1 {
		across.to, down.to = across.to/float64(x), down.to/float64(y)
		p = p.shrink(x, y)
	}
	return p.resize(width, height, bicubic, across, down)
}

// placed is an image of another size that begins at a place of this one, or before it: what lies outside is black.
func (p *picture) placed(height, width, top, left int) *picture {
	out := newPicture(width, height)
	for y := max(0, -top); y < min(p.height, height-top); y++ {
		from, to := max(0, -left), min(p.width, width-left)
		if from < to {
			copy(out.pixels[out.at(from+left, y+top):], p.pixels[p.at(from, y):p.at(to, y)])
		}
	}
	return out
}

// cropped is the middle of an image, filled up with black where it is smaller.
func (p *picture) cropped(height, width int) *picture {
	start := func(is, needed int) int {
		if needed <= is {
			return -((is - needed) / 2)
		}
		return (needed - is + 1) / 2
	}
	return p.placed(height, width, start(p.height, height), start(p.width, width))
}

// scaled are the values of an image, [3, height, width].
func (p *Processor) scaled(image *picture) []float32 {
	area := image.width * image.height
	values := make([]float32, 3*area)
	for c := range 3 {
		for i := range area {
			values[c*area+i] = p.value[c][image.pixels[3*i+c]]
		}
	}
	return values
}
