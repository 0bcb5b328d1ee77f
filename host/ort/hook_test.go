package ort

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// negate is a Patcher whose work shows: Relu becomes Neg. Models without Relu stay as they are.
func negate(r Request) (*Patch, error) {
	content := r.Model
	if r.Path != "" {
		var err error
		if content, err = os.ReadFile(r.Path); err != nil {
			return nil, err
		}
	}
	m := &onnx.Model{}
	if err := proto.Unmarshal(content, m); err != nil {
		return nil, err
	}
	patched := false
	for _, n := range m.Graph.Node {
		if n.GetOpType() == "Relu" {
			n.OpType, patched = proto.String("Neg"), true
		}
	}
	if !patched {
		return nil, nil
	}
	content, err := proto.Marshal(m)
	return &Patch{Model: content, Retained: "kept"}, err
}

func install(t testing.TB, h Hook) {
	t.Helper()
	must.Succeed(t, library.Install(h))
	t.Cleanup(func() {
		if err := library.Uninstall(); err != nil {
			t.Error(err)
		}
	})
}

// TestHookReachesEverySession makes sessions by each function of the C API that is patched, with
// and without options.
func TestHookReachesEverySession(t *testing.T) {
	r := newRaw(t)
	at, size := r.bytes(marshal(t, unary("Relu")))
	path := r.text(writeModel(t, unary("Relu")))
	options := r.options()
	ways := []struct {
		name string
		make func(options uintptr) (*Session, error)
	}{
		{"CreateSession", func(o uintptr) (*Session, error) { return r.session(slotCreateSession, path, o) }},
		{"CreateSessionFromArray", func(o uintptr) (*Session, error) {
			return r.session(slotCreateSessionFromArray, at, size, o)
		}},
		{"CreateSessionWithPrepackedWeightsContainer", func(o uintptr) (*Session, error) {
			return r.session(slotCreateSessionWithPrepackedWeightsContainer, path, o, r.container())
		}},
		{"CreateSessionFromArrayWithPrepackedWeightsContainer", func(o uintptr) (*Session, error) {
			return r.session(slotCreateSessionFromArrayWithPrepackedWeightsContainer, at, size, o, r.container())
		}},
	}
	check := func(t *testing.T, make func(uintptr) (*Session, error), want ...float32) *Session {
		var s *Session
		for _, o := range []uintptr{options, 0} {
			var err error
			if s, err = make(o); err != nil {
				t.Fatal(err)
			}
			expect(t, "y", run(t, s, -1, 2), want...)
		}
		return s
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			check(t, way.make, 0, 2)
			install(t, Hook{Patcher: negate, Strict: true})
			s := check(t, way.make, 1, -2)
			if value, ok := library.hook.retained.Load(s.native); !ok || value.(kept).retained != "kept" {
				t.Errorf("Retained of a live session: got %v", value)
			}
			library.call(slotReleaseSession, s.native) // as another binding releases it
			s.closed.Store(true)
			s.cleanup.Stop()
			if _, ok := library.hook.retained.Load(s.native); ok {
				t.Error("Retained outlived the session")
			}
			must.Succeed(t, library.Uninstall())
			check(t, way.make, 0, 2)
		})
	}
}

// TestUninstallRestores compares the tables and their protection before and after.
func TestUninstallRestores(t *testing.T) {
	editor, compile := library.call(slotGetModelEditorApi), library.call(slotGetCompileApi)
	snapshot := func() (words []uintptr, protection []string) {
		for _, table := range []struct {
			at uintptr
			n  int
		}{{library.api, 425}, {editor, 17}, {compile, 9}} {
			for i := range table.n {
				words = append(words, loadWord(table.at, i))
			}
			maps := must.Value(readMaps())(t)
			m, _ := maps.at(table.at)
			protection = append(protection, m.perm)
		}
		return words, protection
	}
	words, protection := snapshot()
	for round := range 3 {
		install(t, Hook{Patcher: negate})
		install(t, Hook{Patcher: negate}) // again: the same state
		changed := 0
		hooked, hookedProtection := snapshot()
		for i := range hooked {
			if hooked[i] != words[i] {
				changed++
			}
		}
		if changed != 42 {
			t.Errorf("round %d: %d function pointers differ while installed, want 42", round, changed)
		}
		if library.Installed() == nil {
			t.Error("Installed() is nil while a hook is installed")
		}
		must.Succeed(t, errors.Join(library.Uninstall(), library.Uninstall()))
		after, afterProtection := snapshot()
		for i := range after {
			if after[i] != words[i] {
				t.Errorf("round %d: word %d is %#x after Uninstall, was %#x", round, i, after[i], words[i])
			}
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
		patcher Patcher
		reason  string
	}{
		{"patcher fails", func(Request) (*Patch, error) { return nil, broken }, "node 3 is odd"},
		{"patcher panics", func(Request) (*Patch, error) { panic("no such axis") }, "panic: no such axis"},
		{"patch is empty", func(Request) (*Patch, error) { return &Patch{}, nil }, "the patch has no model"},
		{"patched model is refused", func(Request) (*Patch, error) {
			return &Patch{Model: marshal(t, unary("NoSuchOperator"))}, nil
		}, "NoSuchOperator"},
		{"external data is missing", func(Request) (*Patch, error) {
			return &Patch{Model: marshal(t, sum(external("w", "gone.bin", 0, 2))), ExternalFolder: t.TempDir()}, nil
		}, "gone.bin"},
		{"operator is null", func(r Request) (*Patch, error) {
			return &Patch{Model: r.Model, Domains: []Domain{{Name: "test.null", Operators: []uintptr{0}}}}, nil
		}, `operator 0 of domain "test.null" is null`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			content := marshal(t, unary("Relu"))
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&log, nil))
			install(t, Hook{Patcher: c.patcher, Logger: logger})
			expect(t, "y", run(t, session(t, content, SessionOptions{}), -1, 2), 0, 2)
			text := log.String()
			if n := strings.Count(text, "\n"); n != 1 || !strings.Contains(text, "level=WARN") ||
				!strings.Contains(text, `msg="session made unpatched"`) ||
				!strings.Contains(strings.ReplaceAll(text, `\"`, `"`), c.reason) ||
				!strings.Contains(text, "bytes in memory") {
				t.Errorf("%d lines, want one warning with the model and %q:\n%s", n, c.reason, text)
			}
			log.Reset()
			install(t, Hook{Patcher: c.patcher, Logger: logger, Strict: true})
			_, err := library.NewSessionFromBytes(content, SessionOptions{})
			var refusal *Error
			if !errors.As(err, &refusal) || refusal.Code != CodeFail || !strings.Contains(refusal.Message, "was not patched") ||
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
	install(t, Hook{Patcher: negate, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	path := filepath.Join(t.TempDir(), "missing.onnx")
	_, err := library.NewSession(path, SessionOptions{})
	var refusal *Error
	if !errors.As(err, &refusal) || refusal.Code != CodeNoSuchFile || !strings.Contains(refusal.Message, path) {
		t.Errorf("got %v, want ONNX Runtime's own refusal with the path", err)
	}
	if log.Len() > 0 {
		t.Errorf("logged %s", log.String())
	}
}

// TestConcurrentInstall creates sessions while the hook comes and goes: each session is one model
// or the other, and no call is lost.
func TestConcurrentInstall(t *testing.T) {
	content := marshal(t, unary("Relu"))
	path := writeModel(t, unary("Relu"))
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
				var s *Session
				var err error
				if i%2 == 0 {
					s, err = library.NewSessionFromBytes(content, SessionOptions{IntraOpThreads: 1})
				} else {
					s, err = library.NewSession(path, SessionOptions{IntraOpThreads: 1})
				}
				if err != nil {
					t.Error(err)
					return
				}
				made[w][run(t, s, -3)[0]]++
				s.Close()
			}
		}()
	}
	for range 150 {
		if err := library.Install(Hook{Patcher: negate, Strict: true}); err != nil {
			t.Error(err)
		}
		_ = session(t, content, SessionOptions{IntraOpThreads: 1})
		if err := library.Uninstall(); err != nil {
			t.Error(err)
		}
		_ = session(t, content, SessionOptions{IntraOpThreads: 1})
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
	content := marshal(t, unary("Relu"))
	expect(t, "own patcher", run(t, session(t, content, SessionOptions{Patcher: negate}), -1, 2), 1, -2)
	install(t, Hook{Patcher: func(Request) (*Patch, error) { return nil, errors.New("not for this one") }, Strict: true})
	expect(t, "unpatched", run(t, session(t, content, SessionOptions{Unpatched: true}), -1, 2), 0, 2)
	s := session(t, content, SessionOptions{Patcher: negate})
	expect(t, "own patcher, hook installed", run(t, s, -1, 2), 1, -2)
	if _, ok := library.hook.retained.Load(s.native); !ok {
		t.Error("Retained is not held")
	}
	s.Close()
	if _, ok := library.hook.retained.Load(s.native); ok {
		t.Error("Retained outlived the session")
	}
	own := SessionOptions{Patcher: func(Request) (*Patch, error) { return nil, errors.New("cannot") }}
	if _, err := library.NewSessionFromBytes(content, own); err == nil ||
		!strings.HasSuffix(err.Error(), "bytes in memory was not patched: cannot") {
		t.Errorf("own patcher fails: got %v", err)
	}
	own.Patcher = func(Request) (*Patch, error) { return nil, nil }
	expect(t, "own patcher declines", run(t, session(t, content, own), -1, 2), 0, 2)
}

// TestRequest: what a Patcher can learn about the session.
func TestRequest(t *testing.T) {
	path := writeModel(t, unary("Relu"))
	content := marshal(t, unary("Relu"))
	var seen Request
	var entry string
	var has, hasOther bool
	var entries map[string]string
	install(t, Hook{Strict: true, Patcher: func(r Request) (*Patch, error) {
		seen = r
		entry, has = r.Config("graft.plugins")
		_, hasOther = r.Config("graft.disable")
		var err error
		entries, err = r.ConfigEntries()
		return nil, err
	}})
	s, err := library.NewSession(path, SessionOptions{Config: map[string]string{"graft.plugins": "a,b", "other": ""}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if seen.Path != path || seen.Model != nil || !has || entry != "a,b" || hasOther || len(entries) != 2 ||
		entries["graft.plugins"] != "a,b" {
		t.Errorf("from a file: %+v, graft.plugins %q (%v), graft.disable %v, all %v", seen, entry, has, hasOther, entries)
	}
	_ = session(t, content, SessionOptions{})
	if seen.Path != "" || !bytes.Equal(seen.Model, content) || has || len(entries) != 0 {
		t.Errorf("from bytes: path %q, %d bytes, entries %v", seen.Path, len(seen.Model), entries)
	}
	r := newRaw(t)
	must.Value(r.session(slotCreateSession, r.text(path), 0))(t)
	if seen.Path != path || has || len(entries) != 0 {
		t.Errorf("null options: %+v, entries %v", seen, entries)
	}
}

// TestDone: it is called after every attempt, made or failed.
func TestDone(t *testing.T) {
	done := 0
	for _, op := range []string{"Neg", "NoSuchOperator"} {
		o := SessionOptions{Patcher: func(Request) (*Patch, error) {
			return &Patch{Model: marshal(t, unary(op)), Done: func() { done++ }}, nil
		}}
		if s, err := library.NewSessionFromBytes(marshal(t, unary("Relu")), o); err == nil {
			s.Close()
		}
	}
	if done != 2 {
		t.Errorf("Done was called %d times for two attempts", done)
	}
}

// TestEditorAndCompilePassThrough: a graph that the program goes on to edit, and a model that is
// compiled into a file, stay as they are; a debug message says so.
func TestEditorAndCompilePassThrough(t *testing.T) {
	var log bytes.Buffer
	install(t, Hook{Strict: true,
		Patcher: func(Request) (*Patch, error) { return nil, errors.New("must not be asked") },
		Logger:  slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	r := newRaw(t)
	at, size := r.bytes(marshal(t, unary("Relu")))
	path := r.text(writeModel(t, unary("Relu")))
	call := func(table uintptr, index int, args ...uintptr) {
		t.Helper()
		status, _, _ := purego.SyscallN(loadWord(table, index), args...)
		must.Succeed(t, library.takeStatus("call", status))
	}
	editor, compile := library.call(slotGetModelEditorApi), library.call(slotGetCompileApi)
	const finalize = 19
	for _, args := range [][]uintptr{{r.env, path}, {r.env, at, size}} {
		index := int(editorCreateModelEditorSession)
		if len(args) == 3 {
			index = int(editorCreateModelEditorSessionFromArray)
		}
		out := r.word()
		call(editor, index, append(args, r.options(), uintptr(unsafe.Pointer(out)))...)
		call(editor, finalize, *out, 0, 0)
		s := must.Value(library.wrapSession(*out))(t)
		expect(t, "y", run(t, s, -1, 2), 0, 2)
		s.Close()
	}
	const create, setInput, setOutput, release = 1, 2, 4, 0
	out, compiled := r.word(), filepath.Join(t.TempDir(), "compiled.onnx")
	call(compile, create, r.env, r.options(), uintptr(unsafe.Pointer(out)))
	call(compile, setInput, *out, path)
	call(compile, setOutput, *out, r.text(compiled))
	call(compile, int(compileCompileModel), r.env, *out)
	purego.SyscallN(loadWord(compile, release), *out)
	b := must.Value(os.ReadFile(compiled))(t)
	if nodes := unmarshal(t, b).Graph.Node; len(nodes) != 1 || nodes[0].GetOpType() != "Relu" {
		t.Errorf("the compiled model has nodes %v", nodes)
	}
	for _, name := range []string{"CreateModelEditorSession", "CreateModelEditorSessionFromArray", "CompileModel"} {
		if strings.Count(log.String(), "call="+name+"\n") != 1 {
			t.Errorf("no debug message for %s in:\n%s", name, log.String())
		}
	}
}
