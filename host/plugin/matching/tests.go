package matching

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/onnxtext"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// Tested is a graph of a plugin's that was looked through.
type Tested struct {
	Operator string `json:"operator"`
	File     string `json:"file"`
	Must     bool   `json:"must_match"`
	Matches  int    `json:"matches"`
	Reason   string `json:"reason,omitempty"` // why there is no match
	Problem  string `json:"problem,omitempty"`

	// Err is the problem.
	Err error `json:"-"`
}

// Bounds of a plugin's graph: they are small ones that people wrote.
const maxBytes = 1 << 20

var limits = model.Limits{Nodes: 10_000, Tensors: 10_000, Memory: 64 << 20}

// Test looks through the graphs that the operators of a plugin in a folder bring, in the order of the manifest. It
// runs nothing of the plugin's. What is not as the manifest says is a Problem; the error is only that the context
// ended.
func Test(ctx context.Context, folder string, m *manifest.Manifest) ([]Tested, error) {
	list := []Tested{}
	for i := range m.Operators {
		op := &m.Operators[i]
		if op.Tests == nil {
			continue
		}
		for _, part := range []struct {
			files []string
			must  bool
		}{{op.Tests.Match, true}, {op.Tests.NoMatch, false}} {
			for _, file := range part.files {
				t := Tested{Operator: op.Name, File: file, Must: part.must}
				if err := t.test(ctx, folder, op); err != nil {
					t.Problem, t.Err = err.Error(), refused(err)
				}
				if ctx.Err() != nil {
					return list, ctx.Err()
				}
				list = append(list, t)
			}
		}
	}
	return list, nil
}

// refused is an error of whatever kind as one of a plugin that did not pass, its parts as they are.
func refused(err error) error {
	out := &diagnostic.Error{Kind: refusal.ErrVerification, Found: err.Error(), Cause: err}
	if e := (*diagnostic.Error)(nil); errors.As(err, &e) {
		out.Path, out.Found, out.Needed, out.Fix = e.Path, e.Found, e.Needed, e.Fix
	}
	return out
}

func (t *Tested) test(ctx context.Context, folder string, op *manifest.Operator) error {
	path := filepath.Join(folder, filepath.FromSlash(t.File))
	m, err := Open(folder, t.File)
	if err != nil {
		return err
	}
	defer m.Close()
	found, err := Find(ctx, op, m.Proto(), m)
	if err != nil {
		return &diagnostic.Error{Kind: refusal.ErrVerification, Path: path, Found: err.Error(), Fix: "correct the graph",
			Cause: err}
	}
	t.Matches, t.Reason = len(found.Matches), found.Reason
	switch {
	case t.Must && t.Matches == 0:
		return &diagnostic.Error{Kind: refusal.ErrVerification, Path: path,
			Found:  "the pattern of " + op.Name + " is not in it (" + t.Reason + ")",
			Needed: "a match, as it is listed under tests.match", Fix: "correct the graph or the pattern"}
	case !t.Must && t.Matches > 0:
		return &diagnostic.Error{Kind: refusal.ErrVerification, Path: path,
			Found:  fmt.Sprintf("the pattern of %s is in it, up to %s", op.Name, last(found)),
			Needed: "no match, as it is listed under tests.no_match", Fix: "correct the graph or the pattern"}
	}
	return nil
}

func last(f *Found) string {
	nodes := f.Matches[0].Nodes
	return nodes[len(nodes)-1].Path()
}

// Open reads a graph of a plugin's folder, in ONNX's text format or as .onnx with all of its weights inside.
func Open(folder, file string) (*model.Model, error) {
	path := filepath.Join(folder, filepath.FromSlash(file))
	data, err := read(folder, file)
	if err != nil {
		if e := (*diagnostic.Error)(nil); errors.As(err, &e) {
			return nil, e
		}
		return nil, &diagnostic.Error{Kind: refusal.ErrVerification, Path: path,
			Found: "cannot read: " + diagnostic.Cause(err), Needed: "a graph that the manifest lists under tests",
			Fix: "add the file or take it off the list", Cause: err}
	}
	if strings.HasSuffix(file, ".onnxtxt") {
		m, err := onnxtext.Read(path, data)
		if err != nil {
			return nil, err
		}
		if data, err = proto.Marshal(m); err != nil {
			return nil, &diagnostic.Error{Kind: refusal.ErrVerification, Path: path,
				Found: "cannot be written as a model: " + err.Error(), Cause: err}
		}
	}
	m, err := model.Parse(data, "", limits)
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrVerification, Path: path, Found: err.Error(), Fix: "correct the graph",
			Cause: err}
	}
	return m, nil
}

// read reads a file that does not lead out of the folder.
func read(folder, file string) ([]byte, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(filepath.FromSlash(file), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(folder, filepath.FromSlash(file))
	if !info.Mode().IsRegular() {
		return nil, &diagnostic.Error{Kind: refusal.ErrVerification, Path: path,
			Found: "found a " + storage.Kind(info.Mode()), Needed: "a plain file"}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && len(data) > maxBytes {
		return nil, &diagnostic.Error{Kind: refusal.ErrVerification, Path: path,
			Found: fmt.Sprintf("found more than %d bytes", maxBytes), Needed: "a small graph",
			Fix: "cut it down to what the pattern is about"}
	}
	return data, err
}
