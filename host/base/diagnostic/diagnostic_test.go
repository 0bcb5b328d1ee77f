package diagnostic_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/internal/must"
)

var errKind = errors.New("bad model")

// The parts that are set make the line, whatever is missing.
func TestText(t *testing.T) {
	for _, c := range []struct {
		err  diagnostic.Error
		want string
	}{
		{diagnostic.Error{Found: "found nothing"}, "found nothing"},
		{diagnostic.Error{Path: "m.onnx", Found: "opset 7"}, "m.onnx: opset 7"},
		{diagnostic.Error{Path: "m.onnx", Found: "opset 7", Needed: "13 or newer"}, "m.onnx: opset 7, needed 13 or newer"},
		{diagnostic.Error{Path: "m.onnx", Found: "opset 7", Fix: "export it again"}, "m.onnx: opset 7; export it again"},
		{diagnostic.Error{Path: "m.onnx", Found: "opset 7", Needed: "13 or newer", Fix: "export it again"},
			"m.onnx: opset 7, needed 13 or newer; export it again"},
	} {
		must.Equal(t, c.err.Error(), c.want)
	}
}

// Kind and cause are both found, and JSON gives the parts of the outermost error.
func TestParts(t *testing.T) {
	e := &diagnostic.Error{Kind: errKind, Path: "m.onnx", Found: "no such file", Fix: "check the path",
		Cause: fs.ErrNotExist}
	err := fmt.Errorf("opening: %w", e)
	must.Fail(t, err, errKind, fs.ErrNotExist)
	if errors.Is(&diagnostic.Error{Found: "x"}, errKind) {
		t.Error("an error without a kind has one")
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{err,
			`{"error":"opening: m.onnx: no such file; check the path","path":"m.onnx","found":"no such file","fix":"check the path"}`},
		{errors.New("plain"), `{"error":"plain","found":"plain"}`},
	} {
		if got, err := diagnostic.JSON(c.err); err != nil || string(got) != c.want {
			t.Errorf("%s, %v; want %s", got, err, c.want)
		}
	}
}
