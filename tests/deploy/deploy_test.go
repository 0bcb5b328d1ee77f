// Package deploy changes model files under sessions and generators, as deploying new ones does: while they are there,
// and while they are made. What was made answers as before, bit for bit; what is being made is of one file or of the
// other, or is an error; and the process goes on.
package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/textgen"
)

// rounds is how many changes of each kind are made in each case. GRAFT_DEPLOY_ROUNDS sets it: 84 are 1,008 changes.
func rounds(t *testing.T) int {
	text := os.Getenv("GRAFT_DEPLOY_ROUNDS")
	if text == "" {
		return 1
	}
	n := must.Value(strconv.Atoi(text))(t)
	return n
}

// changes are what can happen to a file at path, of which b is another version.
var changes = []struct {
	name string
	do   func(path string, b []byte) error
}{
	{"overwrite", func(path string, b []byte) error { return os.WriteFile(path, b, 0o644) }}, // as cp does
	{"overwrite without truncating", func(path string, b []byte) error {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		for at := 0; at < len(b); at += 1 << 18 {
			if _, err := f.WriteAt(b[at:min(len(b), at+1<<18)], int64(at)); err != nil {
				return err
			}
		}
		return nil
	}},
	{"truncate", func(path string, _ []byte) error { return os.Truncate(path, 0) }},
	{"truncate to half", func(path string, b []byte) error { return os.Truncate(path, int64(len(b)/2)) }},
	{"delete", func(path string, _ []byte) error { return os.Remove(path) }},
	{"replace", func(path string, b []byte) error {
		if err := os.WriteFile(path+".new", b, 0o644); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	}},
}

// subject is a folder with a model, in two versions.
type subject struct {
	name string
	// versions are the files by name.
	versions [2]map[string][]byte
	// open makes what answers.
	open func(folder string) (answers func() (string, error), end func(), err error)
}

// versionsOf are a model's file, and another of the same size whose weights differ.
func versionsOf(b []byte) (v [2][]byte, err error) {
	p := &onnx.Model{}
	if err := proto.Unmarshal(b, p); err != nil {
		return v, err
	}
	for i := range v {
		if v[i], err = (proto.MarshalOptions{Deterministic: true}).Marshal(p); err != nil {
			return v, err
		}
		for _, t := range p.GetGraph().GetInitializer() {
			if raw := t.GetRawData(); len(raw) > 1<<12 && t.GetDataType() == int32(onnx.Tensor_FLOAT) {
				for at := 2; at < len(raw); at += 256 {
					raw[at] ^= 0x20 // a high bit of the mantissa
				}
			}
		}
	}
	return v, nil
}

// child is the environment variable of a process that makes changes: the number of rounds.
const child = "GRAFT_TEST_DEPLOY"

// TestDeploy runs the changes in a process of their own: a fault in mapped memory would end it.
func TestDeploy(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChanges$", "-test.v")
	cmd.Env = append(os.Environ(), child+"="+strconv.Itoa(rounds(t)))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for line := range bytes.Lines(out) {
		if _, after, found := bytes.Cut(line, []byte("made: ")); found {
			t.Logf("%s", after)
		}
	}
}

// TestChanges is that process.
func TestChanges(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv(child))
	if err != nil {
		return
	}
	for _, s := range subjects(t) {
		random := rand.New(rand.NewPCG(1, uint64(len(s.name))))
		var want [2]string
		var took time.Duration
		for version := range want {
			folder := s.write(t, version)
			start := time.Now()
			if want[version], err = s.once(folder, nil); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
			took = time.Since(start)
		}
		if want[0] == want[1] {
			t.Fatalf("%s: both versions answer alike", s.name)
		}
		counts := map[string]int{}
		for name, b := range s.versions[0] {
			if bytes.Equal(b, s.versions[1][name]) {
				delete(s.versions[1], name)
			}
		}
		for round := range n {
			for _, c := range changes {
				for file, b := range s.versions[1] {
					path := func(folder string) string { return filepath.Join(folder, file) }
					folder := s.write(t, 0)
					got, err := s.once(folder, func() error { return c.do(path(folder), b) })
					if err != nil || got != want[0] {
						t.Errorf("%s, round %d: %s of %s under it: answers %.80s, %v, want those of before", s.name, round, c.name, file,
							got, err)
					}
					counts["changed under it"]++
					os.RemoveAll(folder)

					folder = s.write(t, 0)
					changed := make(chan error)
					wait := time.Duration(random.Int64N(int64(took)))
					go func() {
						time.Sleep(wait)
						changed <- c.do(path(folder), b)
					}()
					got, err = s.once(folder, nil)
					if e := <-changed; e != nil {
						t.Fatal(e)
					}
					os.RemoveAll(folder)
					switch {
					case err != nil:
						counts["refused while it is made"]++
					case got == want[0]:
						counts["made of the old file"]++
					case got == want[1] && len(s.versions[1]) == 1:
						counts["made of the new file"]++
					default:
						// Of several files some may be old and some new, each of them whole.
						counts["made of both versions' files"]++
						if len(s.versions[1]) == 1 {
							t.Errorf("%s, round %d: %s of %s after %v: answers are neither version's", s.name, round, c.name, file, wait)
						}
					}
				}
			}
		}
		text, _ := json.Marshal(counts)
		t.Logf("made: %s: %s", s.name, text)
	}
}

// write puts a version into a new folder.
func (s *subject) write(t *testing.T, version int) string {
	t.Helper()
	folder := must.Value(os.MkdirTemp(t.TempDir(), ""))(t)
	for name, b := range s.versions[version] {
		must.Succeed(t, os.WriteFile(filepath.Join(folder, name), b, 0o644))
	}
	return folder
}

// once opens a folder, answers, and answers again after a change. Without a change it answers once.
func (s *subject) once(folder string, change func() error) (string, error) {
	answers, end, err := s.open(folder)
	if err != nil {
		return "", err
	}
	defer end()
	if change != nil {
		if err := change(); err != nil {
			return "", err
		}
		if _, err := answers(); err != nil {
			return "", err
		}
	}
	return answers()
}

func subjects(t *testing.T) []*subject {
	t.Helper()
	read := func(path string) []byte {
		b := must.Value(os.ReadFile(path))(t)
		return b
	}
	versions := func(folder string, names ...string) (v [2]map[string][]byte) {
		v[0], v[1] = map[string][]byte{}, map[string][]byte{}
		for _, name := range names {
			of := must.Value(versionsOf(read(filepath.Join(folder, name))))(t)
			v[0][name], v[1][name] = of[0], of[1]
		}
		return v
	}
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	inline := &subject{name: "session", versions: versions("../../models/tiny-gpt2", "model.onnx")}
	inline.open = func(folder string) (func() (string, error), func(), error) {
		return openSession(l, set, filepath.Join(folder, "model.onnx"))
	}
	external := &subject{name: "session with external data", versions: split(t, inline.versions), open: inline.open}
	folder := "../../models/g2p"
	generator := &subject{name: "generator", versions: versions(folder, "decoder_model_merged.onnx", "encoder_model.onnx")}
	rest := map[string][]byte{}
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json"} {
		rest[name] = read(filepath.Join(folder, name))
	}
	generator.open = func(folder string) (func() (string, error), func(), error) {
		for name, b := range rest {
			if err := os.WriteFile(filepath.Join(folder, name), b, 0o644); err != nil {
				return nil, nil, err
			}
		}
		g, err := textgen.New(context.Background(), folder,
			textgen.Options{Common: graft.Common{AcceptUnverified: true}, BatchSize: 1})
		if err != nil {
			return nil, nil, err
		}
		return func() (string, error) {
			out, err := g.Hypotheses(context.Background(), "deployment", textgen.Search{Beams: 2})
			return fmt.Sprint(out), err // with scores, in which the versions differ
		}, func() { g.Close() }, nil
	}
	return []*subject{inline, external, generator}
}

// split lays the weights of a model into a file beside it, of which alone there are two versions.
func split(t *testing.T, versions [2]map[string][]byte) (v [2]map[string][]byte) {
	t.Helper()
	for i, files := range versions {
		folder := t.TempDir()
		m := must.Value(model.Parse(files["model.onnx"], ""))(t)
		must.Succeed(t, m.Write(t.Context(), m.Proto(), filepath.Join(folder, "model.onnx"),
			model.WriteOptions{InlineLimit: 1 << 16}))
		v[i] = map[string][]byte{}
		list, err := fs.ReadDir(os.DirFS(folder), ".")
		if err != nil || len(list) != 2 {
			t.Fatalf("%d files, %v", len(list), err)
		}
		for _, f := range list {
			if v[i][f.Name()], err = os.ReadFile(filepath.Join(folder, f.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	return v
}

// openSession makes a patched session.
func openSession(l *ort.Library, set *loaded.Set, path string) (func() (string, error), func(), error) {
	s := &sessions.Patcher{Plugins: set.Plugins, Options: set.Plan(plan.Options{Force: true})}
	session, err := session.Open(l, path, session.Options{IntraOpThreads: 1, Patcher: s.Patch})
	if err != nil {
		return nil, nil, err
	}
	given, err := inputs.Make(l, "../../models/tiny-gpt2/model.onnx",
		inputs.Options{Seed: 1, Dims: map[string]int64{"batch_size": 1}, LooseDims: true})
	if err != nil {
		session.Close()
		return nil, nil, err
	}
	return func() (string, error) {
			out, err := session.Run(context.Background(), given.Values)
			if err != nil {
				return "", err
			}
			defer out[0].Close()
			b, err := out[0].Bytes()
			return fmt.Sprintf("%x", b), err
		}, func() {
			given.Close()
			session.Close()
		}, nil
}

// TestMapWeights: nothing of a model's files stays mapped, but with the option that asks for it.
func TestMapWeights(t *testing.T) {
	const folder, decoder = "../../models/g2p", "/models/g2p/decoder_model_merged.onnx"
	for _, mapped := range []bool{false, true} {
		options := textgen.Options{Common: graft.Common{AcceptUnverified: true}}
		if mapped {
			options.MapWeights = true
		}
		g := must.Value(textgen.New(t.Context(), folder, options))(t)
		expectMapped(t, "a generator", decoder, mapped)
		must.Succeed(t, g.Close())
	}
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	for _, mapped := range []bool{false, true} {
		s := &sessions.Patcher{Plugins: set.Plugins, Options: set.Plan(plan.Options{Force: true}), MapWeights: mapped}
		session, err := session.Open(l, "../../models/tiny-gpt2/model.onnx", session.Options{Patcher: s.Patch})
		must.Succeed(t, err)
		expectMapped(t, "a session", "/models/tiny-gpt2/model.onnx", mapped)
		session.Close()
	}
}

func expectMapped(t *testing.T, what, file string, want bool) {
	t.Helper()
	maps := must.Value(os.ReadFile("/proc/self/maps"))(t)
	must.Equal(t, bytes.Contains(maps, []byte(file)), want, what, file)
}
