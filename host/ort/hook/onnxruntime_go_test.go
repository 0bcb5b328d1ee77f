//go:build cgo

package hook

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"weak"

	onnxruntime "github.com/yalue/onnxruntime_go"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// other is onnxruntime_go, initialised once as a program does.
var other = sync.OnceValue(func() error {
	onnxruntime.SetSharedLibraryPath(library.Path())
	return onnxruntime.InitializeEnvironment()
})

// advanced runs an AdvancedSession over the model's bytes.
func advanced(t testing.TB, model []byte, o *onnxruntime.SessionOptions, x ...float32) ([]float32, error) {
	t.Helper()
	in := must.Value(onnxruntime.NewTensor(onnxruntime.NewShape(int64(len(x))), x))(t)
	defer in.Destroy()
	out := must.Value(onnxruntime.NewEmptyTensor[float32](onnxruntime.NewShape(int64(len(x)))))(t)
	defer out.Destroy()
	s, err := onnxruntime.NewAdvancedSessionWithONNXData(model, []string{"x"}, []string{"y"},
		[]onnxruntime.Value{in}, []onnxruntime.Value{out}, o)
	if err != nil {
		return nil, err
	}
	defer s.Destroy()
	if err := s.Run(); err != nil {
		return nil, err
	}
	return slices.Clone(out.GetData()), nil
}

// dynamic runs a DynamicAdvancedSession over the model's file.
func dynamic(t testing.TB, path string, o *onnxruntime.SessionOptions, x ...float32) ([]float32, error) {
	t.Helper()
	s, err := onnxruntime.NewDynamicAdvancedSession(path, []string{"x"}, []string{"y"}, o)
	if err != nil {
		return nil, err
	}
	defer s.Destroy()
	in := must.Value(onnxruntime.NewTensor(onnxruntime.NewShape(int64(len(x))), x))(t)
	defer in.Destroy()
	outputs := []onnxruntime.Value{nil}
	if err := s.Run([]onnxruntime.Value{in}, outputs); err != nil {
		return nil, err
	}
	defer outputs[0].Destroy()
	return slices.Clone(outputs[0].(*onnxruntime.Tensor[float32]).GetData()), nil
}

// TestOnnxruntimeGo: sessions of onnxruntime_go are patched while a hook is installed and unpatched
// otherwise, from bytes and from a file, with options and without.
func TestOnnxruntimeGo(t *testing.T) {
	must.Succeed(t, other())
	libraries := must.Value(ort.Loaded())(t)
	if len(libraries) != 1 || libraries[0] != library {
		t.Fatalf("Loaded() gives %v, want the one library of the process", libraries)
	}
	content, path := orttest.Marshal(t, orttest.Unary("Relu")), orttest.Write(t, orttest.Unary("Relu"))
	options := must.Value(onnxruntime.NewSessionOptions())(t)
	defer options.Destroy()
	must.Succeed(t, options.AddSessionConfigEntry("graft.plugins", "a"))
	check := func(what string, want ...float32) {
		t.Helper()
		for name, o := range map[string]*onnxruntime.SessionOptions{"options": options, "no options": nil} {
			if y, err := advanced(t, content, o, -1, 2); err != nil || !slices.Equal(y, want) {
				t.Errorf("%s, AdvancedSession, %s: got %v (%v), want %v", what, name, y, err, want)
			}
			if y, err := dynamic(t, path, o, -1, 2); err != nil || !slices.Equal(y, want) {
				t.Errorf("%s, DynamicAdvancedSession, %s: got %v (%v), want %v", what, name, y, err, want)
			}
		}
	}
	check("before", 0, 2)
	var retained []weak.Pointer[[]byte]
	var entries []string
	install(t, Hook{Strict: true, Patcher: func(r session.Request) (*session.Patch, error) {
		entry, _ := r.Config("graft.plugins")
		entries = append(entries, entry)
		retained = append(retained, weak.Pointer[[]byte]{})
		return retaining(&retained[len(retained)-1])(r)
	}})
	check("installed", 1, -2)
	runtime.GC()
	if slices.ContainsFunc(retained, func(p weak.Pointer[[]byte]) bool { return p.Value() != nil }) {
		t.Error("what sessions retain is held after they were destroyed")
	}
	slices.Sort(entries)
	must.Equal(t, entries, []string{"", "", "a", "a"})
	must.Succeed(t, Uninstall(library))
	check("after", 0, 2)
}

// TestOnnxruntimeGoFallback: the warning, and the error under Strict as onnxruntime_go gives it.
func TestOnnxruntimeGoFallback(t *testing.T) {
	must.Succeed(t, other())
	path := orttest.Write(t, orttest.Unary("Relu"))
	refuse := func(session.Request) (*session.Patch, error) { return nil, fmt.Errorf("softmax has no axis") }
	var log bytes.Buffer
	install(t, Hook{Patcher: refuse, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	must.Equal(t, must.Value(dynamic(t, path, nil, -1, 2))(t), []float32{0, 2})
	want := `level=WARN msg="session made unpatched" model=` + path + ` reason="softmax has no axis"`
	if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), want) {
		t.Errorf("logged %s, want %s", log.String(), want)
	}
	install(t, Hook{Patcher: refuse, Strict: true})
	must.Fail(t, must.Error(dynamic(t, path, nil, -1)), "graft: "+path+" was not patched: softmax has no axis")
}

// TestOnnxruntimeGoConcurrently mixes both bindings on several goroutines while the hook comes
// and goes.
func TestOnnxruntimeGoConcurrently(t *testing.T) {
	must.Succeed(t, other())
	content, path := orttest.Marshal(t, orttest.Unary("Relu")), orttest.Write(t, orttest.Unary("Relu"))
	var workers sync.WaitGroup
	for w := range 3 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for i := range 40 {
				var y []float32
				var err error
				switch (w + i) % 3 {
				case 0:
					y, err = advanced(t, content, nil, -3)
				case 1:
					y, err = dynamic(t, path, nil, -3)
				default:
					var s *session.Session
					if s, err = session.Open(library, path, session.Options{}); err == nil {
						y = orttest.Run(t, s, -3)
						s.Close()
					}
				}
				if err != nil || len(y) != 1 || y[0] != 0 && y[0] != 3 {
					t.Errorf("got %v (%v), want 0 or 3", y, err)
				}
			}
		}()
	}
	done := make(chan struct{})
	go func() { workers.Wait(); close(done) }()
	for {
		select {
		case <-done:
			return
		default:
		}
		must.Succeed(t, Install(library, Hook{Patcher: orttest.Negate, Strict: true}))
		must.Succeed(t, Uninstall(library))
	}
}
