package vision

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// picture is an image of 8 bits a channel: rows of red, green and blue.
type picture struct {
	width, height int
	pixels        []byte
}

func newPicture(width, height int) *picture {
	return &picture{width, height, make([]byte, 3*width*height)}
}

// at is the first of the three values of a pixel.
func (p *picture) at(x, y int) int { return 3 * (y*p.width + x) }

// What a file may hold. The tallest pages that people scan, A3 at 600 dots an inch, have 70 million pixels.
const (
	maxFile  = 256 << 20 // bytes
	maxImage = 80 << 20  // pixels
	maxScans = 1000      // of a progressive JPEG file, each of which is a pass over all its pixels
)

// read decodes an image of at most so many pixels, as Pillow's Image.open(path).convert("RGB") does: what an image
// says of its own transparency, colour profile and orientation is passed over.
func read(path string, data []byte, most int) (*picture, error) {
	refused := func(found, needed, fix string) error {
		return &diagnostic.Error{Path: path, Found: found, Needed: needed, Fix: fix}
	}
	var size func([]byte) (image.Config, error)
	var decode func([]byte) (image.Image, error)
	switch {
	case bytes.HasPrefix(data, []byte("\x89PNG\r\n\x1a\n")):
		size = func(b []byte) (image.Config, error) { return png.DecodeConfig(bytes.NewReader(b)) }
		decode = func(b []byte) (image.Image, error) { return png.Decode(bytes.NewReader(b)) }
	case bytes.HasPrefix(data, []byte("\xff\xd8\xff")):
		size = func(b []byte) (image.Config, error) { return jpeg.DecodeConfig(bytes.NewReader(b)) }
		decode = func(b []byte) (image.Image, error) { return jpeg.Decode(bytes.NewReader(b)) }
		if n := bytes.Count(data, []byte("\xff\xda")); n > maxScans {
			return nil, refused(fmt.Sprintf("found a JPEG file of %d scans", n), fmt.Sprintf("at most %d", maxScans),
				"save it anew")
		}
	default:
		return nil, refused(fmt.Sprintf("it begins with %q", data[:min(len(data), 8)]), "a PNG or JPEG file",
			"convert it, as with magick IN OUT.png")
	}
	c, err := size(data)
	if err != nil {
		return nil, &diagnostic.Error{Path: path, Found: "its head cannot be read: " + err.Error(), Cause: err}
	}
	if c.Width < 1 || c.Height < 1 || c.Width > most/c.Height {
		return nil, refused(fmt.Sprintf("found an image of %d by %d pixels", c.Width, c.Height),
			fmt.Sprintf("1 to %d pixels in all", most), "make it smaller")
	}
	switch c.ColorModel {
	case color.Gray16Model:
		return nil, refused("found an image of 16 bits of grey", "8 bits a channel",
			"convert it, as with magick IN -depth 8 OUT.png")
	case color.CMYKModel:
		return nil, refused("found an image in CMYK", "one in RGB or grey",
			"convert it, as with magick IN -colorspace sRGB OUT.png")
	}
	decoded, err := decode(data)
	if err != nil {
		return nil, &diagnostic.Error{Path: path, Found: "its pixels cannot be read: " + err.Error(), Cause: err}
	}
	p := newPicture(c.Width, c.Height)
	if !p.fill(decoded) {
		return nil, refused(fmt.Sprintf("found an image that is held as %T", decoded), "one in RGB or grey",
			"save it anew as PNG")
	}
	return p, nil
}

// fill takes the pixels of a decoded image, or reports a kind of image that it does not know.
func (p *picture) fill(decoded image.Image) bool {
	switch m := decoded.(type) {
	case *image.RGBA: // without transparency
		p.each(func(x, y int) [3]byte { return [3]byte(m.Pix[m.PixOffset(x, y):]) })
	case *image.NRGBA:
		p.each(func(x, y int) [3]byte { return [3]byte(m.Pix[m.PixOffset(x, y):]) })
	case *image.Gray:
		p.each(func(x, y int) [3]byte { v := m.Pix[m.PixOffset(x, y)]; return [3]byte{v, v, v} })
	case *image.RGBA64: // the upper halves
		p.each(func(x, y int) [3]byte { i := m.PixOffset(x, y); return [3]byte{m.Pix[i], m.Pix[i+2], m.Pix[i+4]} })
	case *image.NRGBA64:
		p.each(func(x, y int) [3]byte { i := m.PixOffset(x, y); return [3]byte{m.Pix[i], m.Pix[i+2], m.Pix[i+4]} })
	case *image.Paletted:
		palette := make([][3]byte, 256)
		for i, c := range m.Palette {
			if n, ok := c.(color.NRGBA); ok { // transparent or not
				palette[i] = [3]byte{n.R, n.G, n.B}
				continue
			}
			n := color.NRGBAModel.Convert(c).(color.NRGBA)
			palette[i] = [3]byte{n.R, n.G, n.B}
		}
		p.each(func(x, y int) [3]byte { return palette[m.Pix[m.PixOffset(x, y)]] })
	case *image.YCbCr:
		return p.fillYCbCr(m)
	default:
		return false
	}
	return true
}

// each sets all pixels.
func (p *picture) each(of func(x, y int) [3]byte) {
	for y := range p.height {
		for x := range p.width {
			v := of(x, y)
			copy(p.pixels[p.at(x, y):], v[:])
		}
	}
}
