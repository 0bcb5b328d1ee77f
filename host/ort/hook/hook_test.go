package hook

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"
	"weak"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/internal/procmaps"
	"github.com/opgraft/graft/host/ort/internal/slot"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// install puts a hook in for as long as the test runs.
func install(t testing.TB, h Hook) {
	t.Helper()
	must.Succeed(t, Install(library, h))
	t.Cleanup(func() {
		if err := Uninstall(library); err != nil {
			t.Error(err)
		}
	})
}

// retaining is Negate with something that each session retains, of which last is told.
func retaining(last *weak.Pointer[[]byte]) session.Patcher {
	return func(r session.Request) (*session.Patch, error) {
		p, err := orttest.Negate(r)
		if p != nil {
			retained := new([]byte)
			*last, p.Retained = weak.Make(retained), retained
		}
		return p, err
	}
}

// TestHookReachesEverySession makes sessions by each function of the C API that is patched, with
// and without options.
func TestHookReachesEverySession(t *testing.T) {
	r := orttest.NewRaw(t)
	at, size := r.Bytes(orttest.Marshal(t, orttest.Unary("Relu")))
	path := r.Text(orttest.Write(t, orttest.Unary("Relu")))
	options := r.Options()
	ways := []struct {
		name string
		make func(options uintptr) (*session.Session, error)
	}{
		{"CreateSession", func(o uintptr) (*session.Session, error) { return r.Session(slot.CreateSession, path, o) }},
		{"CreateSessionFromArray", func(o uintptr) (*session.Session, error) {
			return r.Session(slot.CreateSessionFromArray, at, size, o)
		}},
		{"CreateSessionWithPrepackedWeightsContainer", func(o uintptr) (*session.Session, error) {
			return r.Session(slot.CreateSessionWithPrepackedWeightsContainer, path, o, r.Container())
		}},
		{"CreateSessionFromArrayWithPrepackedWeightsContainer", func(o uintptr) (*session.Session, error) {
			return r.Session(slot.CreateSessionFromArrayWithPrepackedWeightsContainer, at, size, o, r.Container())
		}},
	}
	check := func(t *testing.T, make func(uintptr) (*session.Session, error), want ...float32) *session.Session {
		var s *session.Session
		for _, o := range []uintptr{options, 0} {
			var err error
			if s, err = make(o); err != nil {
				t.Fatal(err)
			}
			orttest.Expect(t, "y", orttest.Run(t, s, -1, 2), want...)
		}
		return s
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			check(t, way.make, 0, 2)
			var last weak.Pointer[[]byte]
			install(t, Hook{Patcher: retaining(&last), Strict: true})
			s := check(t, way.make, 1, -2)
			if runtime.GC(); last.Value() == nil {
				t.Error("Retained of a live session is not held")
			}
			s.Close()
			if runtime.GC(); last.Value() != nil {
				t.Error("Retained outlived the session")
			}
			must.Succeed(t, Uninstall(library))
			check(t, way.make, 0, 2)
		})
	}
}

// TestUninstallRestores compares the tables and their protection before and after.
func TestUninstallRestores(t *testing.T) {
	editor, compile := library.Call(slot.GetModelEditorApi), library.Call(slot.GetCompileApi)
	snapshot := func() (words []uintptr, protection []string) {
		for _, table := range []struct {
			at uintptr
			n  int
		}{{library.API(), 425}, {editor, 17}, {compile, 9}} {
			for i := range table.n {
				words = append(words, cmem.LoadWord(table.at, i))
			}
			maps := must.Value(procmaps.Read())(t)
			m, _ := maps.At(table.at)
			protection = append(protection, m.Permissions())
		}
		return words, protection
	}
	words, protection := snapshot()
	for round := range 3 {
		install(t, Hook{Patcher: orttest.Negate})
		install(t, Hook{Patcher: orttest.Negate}) // again: the same state
		changed := 0
		hooked, hookedProtection := snapshot()
		for i := range hooked {
			if hooked[i] != words[i] {
				changed++
			}
		}
		must.Equal(t, changed, 42, round)
		if Installed(library) == nil {
			t.Error("Installed() is nil while a hook is installed")
		}
		must.Succeed(t, errors.Join(Uninstall(library), Uninstall(library)))
		after, afterProtection := snapshot()
		for i := range after {
			must.Equal(t, after[i], words[i], round)
		}
		for i := range protection {
			if protection[i] != hookedProtection[i] || protection[i] != afterProtection[i] {
				t.Errorf("round %d: protection of table %d: %s, while installed %s, after %s", round, i, protection[i],
					hookedProtection[i], afterProtection[i])
			}
		}
	}
}

// TestFallback lists what happens when patching fails: the session is made from the program's
// model with one warning, or under Strict the call fails with the reason.
func TestFallback(t *testing.T) {
	broken := errors.New("node 3 is odd")
	cases := []struct {
		name    string
		patcher session.Patcher
		reason  string
	}{
		{"patcher fails", func(session.Request) (*session.Patch, error) { return nil, broken }, "node 3 is odd"},
		{"patcher panics", func(session.Request) (*session.Patch, error) { panic("no such axis") }, "panic: no such axis"},
		{"patch is empty", func(session.Request) (*session.Patch, error) { return &session.Patch{}, nil },
			"the patch has no model"},
		{"patched model is refused", func(session.Request) (*session.Patch, error) {
			return &session.Patch{Model: orttest.Marshal(t, orttest.Unary("NoSuchOperator"))}, nil
		}, "NoSuchOperator"},
		{"external data is missing", func(session.Request) (*session.Patch, error) {
			return &session.Patch{Model: orttest.Marshal(t, orttest.Sum(orttest.External("w", "gone.bin", 0, 2))),
				ExternalFolder: t.TempDir()}, nil
		}, "gone.bin"},
		{"operator is null", func(r session.Request) (*session.Patch, error) {
			return &session.Patch{Model: r.Model, Domains: []operator.Domain{{Name: "test.null", Operators: []uintptr{0}}}}, nil
		}, `operator 0 of domain "test.null" is null`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			content := orttest.Marshal(t, orttest.Unary("Relu"))
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&log, nil))
			install(t, Hook{Patcher: c.patcher, Logger: logger})
			orttest.Expect(t, "y", orttest.Run(t, orttest.Session(t, content, session.Options{}), -1, 2), 0, 2)
			text := log.String()
			if n := strings.Count(text, "\n"); n != 1 || !strings.Contains(text, "level=WARN") ||
				!strings.Contains(text, `msg="session made unpatched"`) ||
				!strings.Contains(strings.ReplaceAll(text, `\"`, `"`), c.reason) ||
				!strings.Contains(text, "bytes in memory") {
				t.Errorf("%d lines, want one warning with the model and %q:\n%s", n, c.reason, text)
			}
			log.Reset()
			install(t, Hook{Patcher: c.patcher, Logger: logger, Strict: true})
			_, err := session.FromBytes(library, content, session.Options{})
			var refusal *ort.Error
			if !errors.As(err, &refusal) || refusal.Code != ort.CodeFail ||
				!strings.Contains(refusal.Message, "was not patched") ||
				!strings.Contains(refusal.Message, c.reason) {
				t.Errorf("strict: got %v, want an OrtStatus with %q", err, c.reason)
			}
			if log.Len() > 0 {
				t.Errorf("strict: logged %s", log.String())
			}
		})
	}
}

// TestFallbackOfBadModel: what ONNX Runtime refuses anyway is refused in its own words, without a
// warning about patching.
func TestFallbackOfBadModel(t *testing.T) {
	var log bytes.Buffer
	install(t, Hook{Patcher: orttest.Negate, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	path := filepath.Join(t.TempDir(), "missing.onnx")
	_, err := session.Open(library, path, session.Options{})
	var refusal *ort.Error
	if !errors.As(err, &refusal) || refusal.Code != ort.CodeNoSuchFile || !strings.Contains(refusal.Message, path) {
		t.Errorf("got %v, want ONNX Runtime's own refusal with the path", err)
	}
	if log.Len() > 0 {
		t.Errorf("logged %s", log.String())
	}
}

// TestConcurrentInstall creates sessions while the hook comes and goes: each session is one model
// or the other, and no call is lost.
func TestConcurrentInstall(t *testing.T) {
	content := orttest.Marshal(t, orttest.Unary("Relu"))
	path := orttest.Write(t, orttest.Unary("Relu"))
	stop := make(chan struct{})
	var workers sync.WaitGroup
	var made [3]map[float32]int
	for w := range made {
		made[w] = map[float32]int{}
		workers.Add(1)
		go func() {
			defer workers.Done()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				var s *session.Session
				var err error
				if i%2 == 0 {
					s, err = session.FromBytes(library, content, session.Options{IntraOpThreads: 1})
				} else {
					s, err = session.Open(library, path, session.Options{IntraOpThreads: 1})
				}
				if err != nil {
					t.Error(err)
					return
				}
				made[w][orttest.Run(t, s, -3)[0]]++
				s.Close()
			}
		}()
	}
	for range 150 {
		must.Succeed(t, Install(library, Hook{Patcher: orttest.Negate, Strict: true}))
		_ = orttest.Session(t, content, session.Options{IntraOpThreads: 1})
		must.Succeed(t, Uninstall(library))
		_ = orttest.Session(t, content, session.Options{IntraOpThreads: 1})
	}
	close(stop)
	workers.Wait()
	total := map[float32]int{}
	for _, m := range made {
		for y, n := range m {
			total[y] += n
		}
	}
	if total[0] == 0 || total[3] == 0 || len(total) != 2 {
		t.Errorf("results of -3: %v, want some 0 (unpatched) and some 3 (patched), nothing else", total)
	}
}

// TestUnpatchedAndOwnPatcher: a session of ours can step around the hook, or bring its own Patcher.
func TestUnpatchedAndOwnPatcher(t *testing.T) {
	content := orttest.Marshal(t, orttest.Unary("Relu"))
	orttest.Expect(t, "own patcher",
		orttest.Run(t, orttest.Session(t, content, session.Options{Patcher: orttest.Negate}), -1, 2), 1, -2)
	install(t, Hook{Patcher: func(session.Request) (*session.Patch, error) { return nil, errors.New("not for this one") },
		Strict: true})
	orttest.Expect(t, "unpatched", orttest.Run(t, orttest.Session(t, content, session.Options{Unpatched: true}), -1, 2),
		0, 2)
	var last weak.Pointer[[]byte]
	s := orttest.Session(t, content, session.Options{Patcher: retaining(&last)})
	orttest.Expect(t, "own patcher, hook installed", orttest.Run(t, s, -1, 2), 1, -2)
	if runtime.GC(); last.Value() == nil {
		t.Error("Retained is not held")
	}
	s.Close()
	if runtime.GC(); last.Value() != nil {
		t.Error("Retained outlived the session")
	}
	own := session.Options{Patcher: func(session.Request) (*session.Patch, error) { return nil, errors.New("cannot") }}
	if _, err := session.FromBytes(library, content, own); err == nil ||
		!strings.HasSuffix(err.Error(), "bytes in memory was not patched: cannot") {
		t.Errorf("own patcher fails: got %v", err)
	}
	own.Patcher = func(session.Request) (*session.Patch, error) { return nil, nil }
	orttest.Expect(t, "own patcher declines", orttest.Run(t, orttest.Session(t, content, own), -1, 2), 0, 2)
}

// TestRequest: what a Patcher can learn about the session.
func TestRequest(t *testing.T) {
	path := orttest.Write(t, orttest.Unary("Relu"))
	content := orttest.Marshal(t, orttest.Unary("Relu"))
	var seen session.Request
	var entry string
	var has, hasOther bool
	var entries map[string]string
	install(t, Hook{Strict: true, Patcher: func(r session.Request) (*session.Patch, error) {
		seen = r
		entry, has = r.Config("graft.plugins")
		_, hasOther = r.Config("graft.disable")
		var err error
		entries, err = r.ConfigEntries()
		return nil, err
	}})
	s, err := session.Open(library, path, session.Options{Config: map[string]string{"graft.plugins": "a,b", "other": ""}})
	must.Succeed(t, err)
	defer s.Close()
	if seen.Path != path || seen.Model != nil || !has || entry != "a,b" || hasOther || len(entries) != 2 ||
		entries["graft.plugins"] != "a,b" {
		t.Errorf("from a file: %+v, graft.plugins %q (%v), graft.disable %v, all %v", seen, entry, has, hasOther, entries)
	}
	_ = orttest.Session(t, content, session.Options{})
	if seen.Path != "" || !bytes.Equal(seen.Model, content) || has || len(entries) != 0 {
		t.Errorf("from bytes: path %q, %d bytes, entries %v", seen.Path, len(seen.Model), entries)
	}
	r := orttest.NewRaw(t)
	must.Value(r.Session(slot.CreateSession, r.Text(path), 0))(t)
	if seen.Path != path || has || len(entries) != 0 {
		t.Errorf("null options: %+v, entries %v", seen, entries)
	}
}

// TestDone: it is called after every attempt, made or failed.
func TestDone(t *testing.T) {
	done := 0
	for _, op := range []string{"Neg", "NoSuchOperator"} {
		o := session.Options{Patcher: func(session.Request) (*session.Patch, error) {
			return &session.Patch{Model: orttest.Marshal(t, orttest.Unary(op)), Done: func() { done++ }}, nil
		}}
		if s, err := session.FromBytes(library, orttest.Marshal(t, orttest.Unary("Relu")), o); err == nil {
			s.Close()
		}
	}
	must.Equal(t, done, 2)
}

// TestEditorAndCompilePassThrough: a graph that the program goes on to edit, and a model that is
// compiled into a file, stay as they are; a debug message says so.
func TestEditorAndCompilePassThrough(t *testing.T) {
	var log bytes.Buffer
	install(t, Hook{Strict: true,
		Patcher: func(session.Request) (*session.Patch, error) { return nil, errors.New("must not be asked") },
		Logger:  slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	r := orttest.NewRaw(t)
	at, size := r.Bytes(orttest.Marshal(t, orttest.Unary("Relu")))
	path := r.Text(orttest.Write(t, orttest.Unary("Relu")))
	call := func(table uintptr, index int, args ...uintptr) {
		t.Helper()
		status, _, _ := purego.SyscallN(cmem.LoadWord(table, index), args...)
		must.Succeed(t, library.TakeStatus("call", status))
	}
	editor, compile := library.Call(slot.GetModelEditorApi), library.Call(slot.GetCompileApi)
	const finalize = 19
	for _, args := range [][]uintptr{{r.Env, path}, {r.Env, at, size}} {
		index := int(slot.EditorCreateModelEditorSession)
		if len(args) == 3 {
			index = int(slot.EditorCreateModelEditorSessionFromArray)
		}
		out := r.Word()
		call(editor, index, append(args, r.Options(), uintptr(unsafe.Pointer(out)))...)
		call(editor, finalize, *out, 0, 0)
		s := must.Value(session.Own(library, *out))(t)
		orttest.Expect(t, "y", orttest.Run(t, s, -1, 2), 0, 2)
		s.Close()
	}
	const create, setInput, setOutput, release = 1, 2, 4, 0
	out, compiled := r.Word(), filepath.Join(t.TempDir(), "compiled.onnx")
	call(compile, create, r.Env, r.Options(), uintptr(unsafe.Pointer(out)))
	call(compile, setInput, *out, path)
	call(compile, setOutput, *out, r.Text(compiled))
	call(compile, int(slot.CompilerCompileModel), r.Env, *out)
	purego.SyscallN(cmem.LoadWord(compile, release), *out)
	b := must.Value(os.ReadFile(compiled))(t)
	if nodes := orttest.Unmarshal(t, b).Graph.Node; len(nodes) != 1 || nodes[0].GetOpType() != "Relu" {
		t.Errorf("the compiled model has nodes %v", nodes)
	}
	for _, name := range []string{"CreateModelEditorSession", "CreateModelEditorSessionFromArray", "CompileModel"} {
		must.Equal(t, strings.Count(log.String(), "call="+name+"\n"), 1, name, log.String())
	}
}
