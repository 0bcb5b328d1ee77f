package vision

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/internal/must"
)

// sample is one image with a configuration, and the shape of what Hugging Face's processor makes of it.
type sample struct {
	Image  string          `json:"image"`
	Config json.RawMessage `json:"config"`
	Shape  []int64         `json:"shape"`
	values []float32
}

func samples(t *testing.T) []sample {
	t.Helper()
	var index struct {
		Cases []sample `json:"cases"`
	}
	must.Succeed(t, json.Unmarshal(content(t, "index.json"), &index))
	z := must.Value(gzip.NewReader(bytes.NewReader(content(t, "values.gz"))))(t)
	for i := range index.Cases {
		s := &index.Cases[i]
		s.values = make([]float32, s.Shape[0]*s.Shape[1]*s.Shape[2])
		must.Succeed(t, binary.Read(z, binary.LittleEndian, s.values))
	}
	if n, err := z.Read(make([]byte, 1)); n != 0 || err != io.EOF || len(index.Cases) < 40 {
		t.Fatalf("%d cases, and values beyond them: %v", len(index.Cases), err)
	}
	return index.Cases
}

func content(t testing.TB, name string) []byte {
	t.Helper()
	data := must.Value(os.ReadFile(filepath.Join("testdata", name)))(t)
	return data
}

// folder has a configuration.
func folder(t testing.TB, config string) string {
	t.Helper()
	dir := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(dir, ConfigFile), []byte(config), 0o644))
	return dir
}

// Values are those of Hugging Face's image processors, bit for bit from PNG files. Of a JPEG file's pixels, whose
// transform libjpeg rounds in another way than Go does, a value may be a few of 255 away.
func TestValuesAreHuggingFaces(t *testing.T) {
	for _, s := range samples(t) {
		t.Run(s.Image+string(s.Config), func(t *testing.T) {
			p := must.Value(Open(folder(t, string(s.Config)), append([]int64{1}, s.Shape...)))(t)
			got := must.Value(p.File(filepath.Join("testdata", s.Image)))(t)
			if len(got) != len(s.values) {
				t.Fatalf("%d values, want %d", len(got), len(s.values))
			}
			worst, sum, n := 0.0, 0.0, 0
			for i, v := range got {
				d := math.Abs(float64(v - s.values[i]))
				worst, sum = max(worst, d), sum+d
				if d != 0 {
					n++
				}
			}
			step := 1.0 / 255
			if p.Normalize {
				step /= p.Deviation[0]
			}
			t.Logf("%d of %d values differ, at most by %.2f of 255", n, len(got), worst/step)
			jpg := strings.HasSuffix(s.Image, ".jpg")
			if !jpg && worst != 0 || worst > 4*step || sum/float64(len(got)) > step {
				t.Errorf("%d of %d values differ, at most by %.2f of 255", n, len(got), worst/step)
			}
		})
	}
}

func TestConfigurationsAreChecked(t *testing.T) {
	for _, c := range []struct{ config, want string }{
		{`{"image_processor_type": "BeitImageProcessor"}`,
			`image_processor_type is "BeitImageProcessor", needed ViTImageProcessor, DeiTImageProcessor, DonutImageProcessor or CLIPImageProcessor`},
		{`{}`, `image_processor_type is ""`},
		{`{"image_processor_type": "ViT"}`, `image_processor_type is "ViT"`},
		{`{"image_processor_type": "ViTImageProcessorFast"}`, "use_fast=False"},
		{`{"image_processor_type": "ViTImageProcessor", "resample": 6}`, "resample is 6, needed 0 (nearest)"},
		{`{"image_processor_type": "ViTImageProcessor", "size": {"shortest_edge": 32}}`, "size has no height and width"},
		{`{"image_processor_type": "DonutImageProcessor", "do_resize": false, "size": {"shortest_edge": 32}}`,
			"size has no height and width"},
		{`{"image_processor_type": "ViTImageProcessor", "size": 16}`,
			"it makes images of 16 by 16 pixels (height by width), needed 32 by 32, which config.json says"},
		{`{"image_processor_type": "DeiTImageProcessor", "crop_size": 31}`, "it makes images of 31 by 31"},
		{`{"image_processor_type": "DonutImageProcessor", "size": [32, 31]}`, "it makes images of 31 by 32"},
		{`{"image_processor_type": "ViTImageProcessor", "size": [1, 2, 3]}`, "a size is a list of 3 numbers"},
		{`{"image_processor_type": "ViTImageProcessor", "size": 99999999}`, "a size is 99999999"},
		{`{"image_processor_type": "ViTImageProcessor", "size": 32, "image_std": 0}`, "becomes -Inf"},
		{`{"image_processor_type": "ViTImageProcessor", "size": 32, "image_mean": [0.5]}`,
			"found 1 numbers, needed is one for each of 3 channels"},
		{`{"image_processor_type": "ViTImageProcessor", "size": 32, "rescale_factor": 1e300}`, "becomes"},
		{`{"image_processor_type": 3}`, "image_processor_type"},
		{`[`, "unexpected end of JSON"},
	} {
		_, err := Open(folder(t, c.config), []int64{1, 3, 32, 32})
		var d *diagnostic.Error
		if !errors.As(err, &d) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), ConfigFile) {
			t.Errorf("%s: %v, want %q", c.config, err, c.want)
		}
	}
	if _, err := Open(t.TempDir(), []int64{1, 3, 32, 32}); err == nil ||
		!strings.Contains(err.Error(), ConfigFile+": not found, needed how pixel values are computed from images") {
		t.Errorf("without a configuration: %v", err)
	}
	if _, err := Open(t.TempDir(), []int64{1, 1, 32, 32}); err == nil ||
		!strings.Contains(err.Error(), "config.json: the encoder reads images of 1 channels (num_channels), needed 3") {
		t.Errorf("one channel: %v", err)
	}
}

// encoded is an image as a PNG file.
func encoded(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	must.Succeed(t, png.Encode(&b, m))
	return b.Bytes()
}

func TestImagesThatAreRefused(t *testing.T) {
	whole := encoded(t, image.NewNRGBA(image.Rect(0, 0, 32, 32)))
	for _, c := range []struct {
		name, config, want string
		data               []byte
	}{
		{"gif", "", `it begins with "GIF89a", needed a PNG or JPEG file; convert it`, []byte("GIF89a")},
		{"empty", "", `it begins with ""`, nil},
		{"cut", "", "its pixels cannot be read: ", whole[:len(whole)-20]},
		{"head", "", "its head cannot be read: ", whole[:20]},
		{"large", "", "found an image of 2001 by 1000 pixels, needed 1 to 2000000 pixels in all",
			encoded(t, image.NewGray(image.Rect(0, 0, 2001, 1000)))},
		{"16 bits", "", "16 bits of grey", encoded(t, image.NewGray16(image.Rect(0, 0, 32, 32)))},
		{"other size", `{"image_processor_type": "ViTImageProcessor", "do_resize": false}`,
			"processed it has 31 by 32 pixels (height by width), needed 32 by 32",
			encoded(t, image.NewGray(image.Rect(0, 0, 32, 31)))},
		{"long", `{"image_processor_type": "DonutImageProcessor", "size": 32}`, "resized it would have 32 by 64000 pixels",
			encoded(t, image.NewGray(image.Rect(0, 0, 2000, 1)))},
		{"tall", "", "resized it would have 200000 by 32 pixels (height by width) on the way",
			encoded(t, image.NewGray(image.Rect(0, 0, 1, 200000)))},
		{"thin", `{"image_processor_type": "DonutImageProcessor", "size": 32, "do_resize": false}`,
			"resized it would have 0 by 32 pixels", encoded(t, image.NewGray(image.Rect(0, 0, 2000, 1)))},
		{"not filled",
			`{"image_processor_type": "DonutImageProcessor", "size": 32, "do_resize": false, "do_thumbnail": false}`,
			"needed at most 32 by 32, up to which it is filled", encoded(t, image.NewGray(image.Rect(0, 0, 40, 20)))},
	} {
		if c.config == "" {
			c.config = `{"image_processor_type": "ViTImageProcessor", "size": 32}`
		}
		p, err := Open(folder(t, c.config), []int64{1, 3, 32, 32})
		must.Succeed(t, err)
		_, err = p.values("page.png", c.data, 2_000_000)
		var d *diagnostic.Error
		if !errors.As(err, &d) || !strings.HasPrefix(err.Error(), "page.png: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// Nothing waits for a pipe.
func TestAnImageIsAFile(t *testing.T) {
	p := must.Value(Open(folder(t, `{"image_processor_type": "ViTImageProcessor", "size": 32}`), []int64{1, 3, 32, 32}))(t)
	pipe := filepath.Join(t.TempDir(), "page.png")
	must.Succeed(t, syscall.Mkfifo(pipe, 0o600))
	must.Fail(t, must.Error(p.File(pipe)), "needed a regular file")
}

// FuzzImage: no PNG or JPEG file makes reading it take more memory or time than it may.
func FuzzImage(f *testing.F) {
	m := image.NewNRGBA(image.Rect(0, 0, 9, 7))
	m.Set(3, 3, color.NRGBA{200, 100, 50, 128})
	f.Add(encoded(f, m))
	f.Add(encoded(f, image.NewPaletted(image.Rect(0, 0, 5, 5), color.Palette{color.Black, color.White})))
	for _, name := range []string{"tiny.png", "bits.png", "greyalpha.png", "quarter.jpg", "progressive.jpg"} {
		f.Add(content(f, name))
	}
	var b bytes.Buffer
	must.Succeed(f, jpeg.Encode(&b, m, nil))
	f.Add(b.Bytes())
	var processors []*Processor
	for _, kind := range []string{"Donut", "ViT"} {
		p := &Processor{shape: []int64{1, 3, 16, 12}}
		must.Succeed(f, p.configure([]byte(`{"image_processor_type": "`+kind+
			`ImageProcessor", "size": {"height": 16, "width": 12}}`)))
		processors = append(processors, p)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		must.CostLittle(t, len(data), func() {
			for _, p := range processors {
				values, err := p.values("page", data, 1<<20)
				if err == nil && len(values) != 3*16*12 {
					t.Errorf("%d values", len(values))
				}
				for _, v := range values {
					if !(v >= -1 && v <= 1) {
						t.Fatalf("a value is %g", v)
					}
				}
			}
		})
	})
}

// FuzzConfigure: no preprocessor_config.json makes of a small image anything but an error or the model's values.
func FuzzConfigure(f *testing.F) {
	seen := map[string]bool{}
	var index struct {
		Cases []sample `json:"cases"`
	}
	must.Succeed(f, json.Unmarshal(content(f, "index.json"), &index))
	for _, s := range index.Cases {
		if !seen[string(s.Config)] {
			seen[string(s.Config)] = true
			f.Add([]byte(s.Config))
		}
	}
	f.Add([]byte(`{"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 16384}, "crop_size": 16}`))
	page := encoded(f, image.NewGray(image.Rect(0, 0, 30, 20)))
	f.Fuzz(func(t *testing.T, data []byte) {
		must.CostLittle(t, len(data), func() {
			p := &Processor{shape: []int64{1, 3, 16, 16}}
			if p.configure(data) != nil {
				return
			}
			values, err := p.values("page", page, 1<<20)
			if err == nil && len(values) != 3*16*16 {
				t.Errorf("%d values", len(values))
			}
		})
	})
}
