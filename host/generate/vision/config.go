package vision

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/base/storage"
)

// ConfigFile is the file of a model folder that says how pixel values are computed.
const ConfigFile = "preprocessor_config.json"

// Processor makes pixel values for one model.
type Processor struct {
	path  string  // of its configuration
	shape []int64 // [1, 3, height, width]
	settings
	value [3][256]float32 // of a byte of each channel
}

// Open reads how pixel values are computed for the model of a folder, whose encoder takes the given shape, [1,
// channels, height, width]. Errors are of type [*diagnostic.Error].
func Open(folder string, shape []int64) (*Processor, error) {
	p := &Processor{path: filepath.Join(folder, ConfigFile), shape: shape}
	if shape[1] != 3 {
		return nil, &diagnostic.Error{Path: filepath.Join(folder, "config.json"),
			Found:  fmt.Sprintf("the encoder reads images of %d channels (num_channels)", shape[1]),
			Needed: "3: red, green and blue"}
	}
	data, err := storage.ReadRegular(p.path, limit.Config)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &diagnostic.Error{Path: p.path, Found: "not found", Needed: "how pixel values are computed from images",
			Cause: err,
			Fix: "save it beside the model, as with AutoImageProcessor.from_pretrained(MODEL, " +
				"use_fast=False).save_pretrained(FOLDER)"}
	}
	if err != nil {
		return nil, err
	}
	return p, p.configure(data)
}

// Shape is that of pixel values, [1, 3, height, width].
func (p *Processor) Shape() []int64 { return p.shape }

// Kind is what is read.
func (p *Processor) Kind() string { return "images" }

// settings are what a preprocessor_config.json says, with what the class that it names has where it is silent.
type settings struct {
	kind      string
	Resize    flag    `json:"do_resize"`
	Size      size    `json:"size"`
	Resample  int     `json:"resample"`
	Thumbnail flag    `json:"do_thumbnail"`
	Align     flag    `json:"do_align_long_axis"`
	Pad       flag    `json:"do_pad"`
	Crop      flag    `json:"do_center_crop"`
	CropSize  size    `json:"crop_size"`
	Rescale   flag    `json:"do_rescale"`
	Factor    float64 `json:"rescale_factor"`
	Normalize flag    `json:"do_normalize"`
	Mean      triple  `json:"image_mean"`
	Deviation triple  `json:"image_std"`
}

// The classes of image processors, without the ending of their names.
const (
	vit   = "ViT"
	deit  = "DeiT"
	donut = "Donut"
	clips = "CLIP"
)

// classes are the settings of each class where its file is silent.
var classes = func() map[string]settings {
	plain := settings{Resize: true, Size: size{Height: 224, Width: 224}, Resample: bilinear, Rescale: true,
		Factor:    1.0 / 255,
		Normalize: true, Mean: triple{0.5, 0.5, 0.5}, Deviation: triple{0.5, 0.5, 0.5}}
	all := map[string]settings{vit: plain}
	s := plain
	s.Thumbnail, s.Pad, s.Size = true, true, size{Height: 2560, Width: 1920}
	all[donut] = s
	s = plain
	s.Crop, s.CropSize, s.Size, s.Resample = true, size{Height: 224, Width: 224}, size{Height: 256, Width: 256}, bicubic
	all[deit] = s
	s.Size, s.Mean, s.Deviation = size{Shortest: 224}, triple{0.48145466, 0.4578275, 0.40821073},
		triple{0.26862954, 0.26130258, 0.27577711}
	all[clips] = s
	for kind, s := range all {
		s.kind = kind
		all[kind] = s
	}
	return all
}()

// refuse is an error about the configuration.
func (p *Processor) refuse(found, needed, fix string) error {
	return &diagnostic.Error{Path: p.path, Found: found, Needed: needed, Fix: fix}
}

// configure takes the values of a preprocessor_config.json.
func (p *Processor) configure(data []byte) error {
	var names struct {
		Image   string `json:"image_processor_type"`
		Feature string `json:"feature_extractor_type"` // as earlier releases of Transformers wrote it
	}
	if err := json.Unmarshal(data, &names); err != nil {
		return &diagnostic.Error{Path: p.path, Found: err.Error(), Cause: err}
	}
	name := names.Image
	if name == "" {
		name = names.Feature
	}
	kind := strings.TrimSuffix(strings.TrimSuffix(name, "FeatureExtractor"), "ImageProcessor")
	if strings.HasSuffix(name, "ImageProcessorFast") {
		return p.refuse(fmt.Sprintf("image_processor_type is %q, whose pixels are not those of the one without Fast",
			diagnostic.Clip(name)), "",
			"save the other, as with AutoImageProcessor.from_pretrained(FOLDER, use_fast=False).save_pretrained(FOLDER)")
	}
	s, ok := classes[kind]
	if !ok || kind == name {
		return p.refuse(fmt.Sprintf("image_processor_type is %q", diagnostic.Clip(name)),
			"ViTImageProcessor, DeiTImageProcessor, DonutImageProcessor or CLIPImageProcessor", "")
	}
	if kind == clips {
		s.Size.edge, s.CropSize.edge = true, false
	}
	s.Size.reversed = kind == donut
	if err := json.Unmarshal(data, &s); err != nil {
		return &diagnostic.Error{Path: p.path, Found: err.Error(), Cause: err}
	}
	if kind != donut {
		s.Thumbnail, s.Align, s.Pad = false, false, false // which these classes pass over
	}
	if kind == vit || kind == donut {
		s.Crop = false
	}
	p.settings = s
	return p.check()
}

// check refuses settings with which no image can be processed.
func (p *Processor) check() error {
	if (p.Resize || p.Thumbnail) && (p.Resample < 0 || p.Resample >= len(filters)) {
		return p.refuse(fmt.Sprintf("resample is %d", p.Resample),
			"0 (nearest), 1 (lanczos), 2 (bilinear), 3 (bicubic), 4 (box) or 5 (hamming)", "")
	}
	edged := p.kind == clips && p.Size.Shortest > 0
	if (bool(p.Resize) || p.kind == donut) && !edged && (p.Size.Height < 1 || p.Size.Width < 1) {
		return p.refuse("size has no height and width",
			fmt.Sprintf("both, from 1 to %d, for %sImageProcessor", maxEdge, p.kind), "")
	}
	if p.Crop && (p.CropSize.Height < 1 || p.CropSize.Width < 1) {
		return p.refuse("crop_size has no height and width", fmt.Sprintf("both, from 1 to %d", maxEdge), "")
	}
	if err := p.tabulate(); err != nil {
		return err
	}
	// Where the last step gives one size to all images, it must be the model's.
	var last *size
	switch {
	case bool(p.Crop):
		last = &p.CropSize
	case bool(p.Pad), p.kind != donut && bool(p.Resize) && !edged:
		last = &p.Size
	}
	if last != nil && (int64(last.Height) != p.shape[2] || int64(last.Width) != p.shape[3]) {
		return p.refuse(fmt.Sprintf("it makes images of %d by %d pixels (height by width)", last.Height, last.Width),
			fmt.Sprintf("%d by %d, which config.json says (image_size of the encoder): they are not of one model", p.shape[2],
				p.shape[3]), "")
	}
	return nil
}

// tabulate computes the value of each byte.
func (p *Processor) tabulate() error {
	for c := range p.value {
		for i := range p.value[c] {
			v := float32(i)
			if p.Rescale {
				v = float32(float64(i) * p.Factor)
			}
			if p.Normalize {
				v = (v - float32(p.Mean[c])) / float32(p.Deviation[c])
			}
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return p.refuse(fmt.Sprintf("with rescale_factor %g, image_mean %g and image_std %g the value %d of channel %d "+
					"becomes %g", p.Factor, p.Mean[c], p.Deviation[c], i, c, v), "numbers", "")
			}
			p.value[c][i] = v
		}
	}
	return nil
}

// maxEdge is the greatest height or width that a configuration may ask for.
const maxEdge = 1 << 14

// flag is a truth value, of which null is the same as false.
type flag bool

func (f *flag) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*f = false
		return nil
	}
	return json.Unmarshal(data, (*bool)(f))
}

// size is {height, width}, {shortest_edge}, a list of two, or a number.
type size struct {
	Height   int  `json:"height"`
	Width    int  `json:"width"`
	Shortest int  `json:"shortest_edge"`
	edge     bool // a number is the shortest edge, not both
	reversed bool // a list is width and height
}

func (s *size) UnmarshalJSON(data []byte) error {
	is := size{edge: s.edge, reversed: s.reversed}
	switch data = bytes.TrimSpace(data); data[0] {
	case 'n': // null: as the class has it
		return nil
	case '{':
		type plain size
		if err := json.Unmarshal(data, (*plain)(&is)); err != nil {
			return err
		}
	case '[':
		var list []int
		if err := json.Unmarshal(data, &list); err != nil {
			return err
		}
		if len(list) != 2 {
			return fmt.Errorf("a size is a list of %d numbers, needed are 2", len(list))
		}
		if is.reversed {
			slices.Reverse(list)
		}
		is.Height, is.Width = list[0], list[1]
	default:
		var n int
		if err := json.Unmarshal(data, &n); err != nil {
			return err
		}
		if is.Height, is.Width = n, n; is.edge {
			is.Height, is.Width, is.Shortest = 0, 0, n
		}
	}
	for _, n := range []int{is.Height, is.Width, is.Shortest} {
		if n < 0 || n > maxEdge {
			return fmt.Errorf("a size is %d, needed are 1 to %d", n, maxEdge)
		}
	}
	*s = is
	return nil
}

// triple is a number for each channel, or one for all.
type triple [3]float64

func (t *triple) UnmarshalJSON(data []byte) error {
	switch data = bytes.TrimSpace(data); data[0] {
	case 'n': // null: as the class has it
		return nil
	case '[':
		var list []float64
		if err := json.Unmarshal(data, &list); err != nil {
			return err
		}
		if len(list) != len(t) {
			return fmt.Errorf("found %d numbers, needed is one for each of 3 channels", len(list))
		}
		copy(t[:], list)
		return nil
	}
	var v float64
	err := json.Unmarshal(data, &v)
	*t = triple{v, v, v}
	return err
}
