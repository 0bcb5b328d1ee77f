package quantization

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/generate/text"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
)

// ErrRequest is the kind of errors of a request that no model can be quantised by.
var ErrRequest = errors.New("bad request")

// Request says how a model is to be quantised, and by which texts.
type Request struct {
	Plugins *loaded.Set
	Runtime string // path of ONNX Runtime's library; "" for the one that is found. Opened for texts alone
	Weights prepare.Weights
	Threads int // 0: one a core
	// Calibrate are texts by which scales of four bits are chosen; nil for none.
	Calibrate []string
	// MaxKL is the bound of the mean divergence of a token over Input, in nats; 0 for none. Tokens is as that of Bound.
	MaxKL  float64
	Input  []string
	Tokens int

	Step     func(what string)
	Progress func(done, total int64)
}

// Check refuses what no model can be quantised by.
func (r *Request) Check() error {
	refuse := func(found, needed string) error {
		return &diagnostic.Error{Kind: ErrRequest, Found: found, Needed: needed}
	}
	if err := Check(r.Weights); err != nil {
		return &diagnostic.Error{Kind: ErrRequest, Found: err.Error(), Cause: err}
	}
	switch {
	case r.Calibrate != nil && r.Weights.Of(false) != prepare.Int4Weights && r.Weights.Of(true) != prepare.Int4Weights:
		return refuse(fmt.Sprintf("calibration of %s", written(r.Weights)),
			"weights of four bits, whose scales alone are chosen by texts")
	case r.MaxKL != 0 && (!(r.MaxKL > 0) || math.IsInf(r.MaxKL, 0)):
		return refuse(fmt.Sprintf("a bound of %g", r.MaxKL), "a divergence above 0, in nats a token")
	case r.MaxKL != 0 && len(r.Input) == 0:
		return refuse("a bound without texts", "texts to measure it over")
	case r.Tokens < 0 || r.Tokens > limit.Tokens:
		return refuse(fmt.Sprintf("%d tokens", r.Tokens), fmt.Sprintf("at most %d", limit.Tokens))
	}
	return nil
}

// Quantize writes the model at a path, a folder or a single .onnx, to another: see Folder, FolderWithin and File.
func Quantize(ctx context.Context, path, to string, r Request) (*Report, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, &diagnostic.Error{Path: path, Found: "cannot open it: " + diagnostic.Cause(err),
			Needed: "a model folder or an .onnx", Cause: err}
	}
	if info.IsDir() {
		if err := vacant(filepath.Clean(to)); err != nil { // before hours of work
			return nil, err
		}
	} else if r.MaxKL > 0 {
		return nil, &diagnostic.Error{Kind: ErrRequest, Path: path, Found: "a single file",
			Needed: "a folder that generates, for a bound", Fix: "name the folder"}
	}
	o := Options{Plugins: r.Plugins.Plugins, Weights: r.Weights, Threads: r.Threads, Step: r.Step, Progress: r.Progress}
	m := MeasureOptions{Plugins: r.Plugins, Threads: r.Threads}
	if r.Calibrate != nil || r.MaxKL > 0 {
		if m.Library, err = ort.FindAndOpen(r.Runtime); err != nil {
			return nil, err
		}
	}
	if r.Calibrate != nil {
		c, err := calibrationOf(ctx, path, info.IsDir(), r.Calibrate, m)
		if err == nil {
			err = o.Calibrate(ctx, *c)
		}
		if err != nil {
			return nil, err
		}
	}
	switch {
	case r.MaxKL > 0:
		known, err := openTexts(path)
		if err != nil {
			return nil, err
		}
		tokens, err := known.tokens(ctx, r.Input, known.encoderLimit())
		if err != nil {
			return nil, err
		}
		return FolderWithin(ctx, path, to, o, m, Bound{KL: r.MaxKL, Texts: tokens, Tokens: r.Tokens})
	case info.IsDir():
		return Folder(ctx, path, to, o)
	}
	return File(ctx, path, to, o)
}

// calibrationOf makes what a model reads of texts.
func calibrationOf(ctx context.Context, path string, folder bool, texts []string, m MeasureOptions) (*Calibration,
	error) {
	c := &Calibration{Library: m.Library, Threads: m.Threads, Path: path}
	beside := path
	if folder {
		files, err := modeldir.Find(path)
		if err != nil {
			return nil, err
		}
		if c.Encoder, c.Path = files.Encoder, files.Decoder; c.Encoder != "" {
			c.Path = files.First
		}
	} else {
		beside = besideOf(path)
	}
	known, err := openTexts(beside)
	if err != nil {
		return nil, err
	}
	c.Window = calibrationWindow
	if known.config != nil {
		c.Window = int(min(calibrationWindow, known.config.Positions))
	}
	cut := known.encoderLimit()
	if c.Encoder == "" {
		if cut, err = cutOf(c.Path, c.Window); err != nil {
			return nil, err
		}
	}
	tokens, err := known.tokens(ctx, texts, cut)
	if err != nil {
		return nil, err
	}
	if c.Encoder == "" {
		for _, list := range tokens {
			c.Texts = append(c.Texts, Text{Tokens: list})
		}
		return c, nil
	}
	if err := readsTexts(path, known.config); err != nil {
		return nil, err
	}
	g, closeIt, err := m.open(ctx, path, prepare.Weights{})
	if err != nil {
		return nil, err
	}
	defer closeIt()
	count := 0
	for i, list := range tokens {
		if count >= calibrationTokens {
			break
		}
		if len(list) == 0 {
			continue
		}
		t, _, err := whole(ctx, g, list)
		if err != nil {
			return nil, fmt.Errorf("text %d: %w", i+1, err)
		}
		count += len(t.Encoder) + len(t.Tokens)
		c.Texts = append(c.Texts, t)
	}
	return c, nil
}

// cutOf is how long the texts of a graph may be: those of an encoder, which reads no past, are cut as an encoder's
// are, and 0 is for any.
func cutOf(path string, window int) (int, error) {
	m, err := model.Open(path)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	for _, in := range m.Proto().GetGraph().GetInput() {
		if roles.ByName(in.GetName()) == roles.Past {
			return 0, nil
		}
	}
	return window, nil
}

// besideOf is the folder in which the tokenizer of a single file is: its own, or the one above a folder onnx.
func besideOf(path string) string {
	folder := filepath.Dir(path)
	if _, err := os.Stat(filepath.Join(folder, "tokenizer_config.json")); err == nil || filepath.Base(folder) != "onnx" {
		return folder
	}
	return filepath.Dir(folder)
}

// texts turn texts into the tokens of a model.
type texts struct {
	tokenizer *text.Tokenizer
	config    *modeldir.Config // nil where a folder has none that says how a model generates
	search    search.Options
}

func openTexts(folder string) (*texts, error) {
	t := &texts{}
	var err error
	if t.tokenizer, err = text.Open(folder); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(folder, "config.json")); errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if t.config, err = modeldir.ReadConfig(folder); err != nil {
		return nil, err
	}
	t.search, err = decode.SearchOf(folder, t.config, nil)
	return t, err
}

// encoderLimit is how many tokens an encoder-decoder's encoder reads; 0 for any number.
func (t *texts) encoderLimit() int {
	if t.config == nil || !t.search.IsEncoderDecoder {
		return 0
	}
	return t.config.InputLimit(t.search, true, min(t.config.Positions, modeldir.DefaultPositions))
}

// tokens are those of texts, each cut to a length, 0 for none.
func (t *texts) tokens(ctx context.Context, list []string, most int) ([][]int32, error) {
	out := make([][]int32, len(list))
	for i, s := range list {
		ids, err := t.tokenizer.Encode(ctx, strings.TrimRight(s, "\r\n"), text.EncodeOptions{MaxLength: most})
		if err != nil {
			return nil, fmt.Errorf("text %d: %w", i+1, err)
		}
		for _, id := range ids {
			out[i] = append(out[i], int32(id))
		}
	}
	return out, nil
}
