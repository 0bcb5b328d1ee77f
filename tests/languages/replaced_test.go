package languages

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/onnx/onnxtext"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/internal/must"
)

// triesVariable says how often each entry opens a file that was replaced; 10,000 in make test-longest.
const triesVariable = "GRAFT_REPLACED_TRIES"

// A place is where a program finds one of two files of equal size, whose content was last written at the same time.
type place struct {
	name  string
	swap  *swap
	path  string    // where the file is replaced
	opens string    // what the program opens: path, or the model that refers to it
	store [2]string // files that stay as they are
	now   int       // which of them is there
}

// swaps are the ways by which another file comes to a path.
var swaps = []*swap{
	{name: "written in place", do: func(p *place, to int) error {
		f, err := os.OpenFile(p.path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(p.copyTo(f, to), f.Close())
	}},
	{name: "written anew", do: func(p *place, to int) error {
		f, err := os.Create(p.path)
		if err != nil {
			return err
		}
		return errors.Join(p.copyTo(f, to), f.Close())
	}},
	{name: "written through a mapping", do: func(p *place, to int) error {
		f, err := os.OpenFile(p.path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		b, err := os.ReadFile(p.store[to])
		if err != nil {
			return err
		}
		m, err := unix.Mmap(int(f.Fd()), 0, len(b), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		copy(m, b)
		return errors.Join(unix.Msync(m, unix.MS_SYNC), unix.Munmap(m))
	}},
	{name: "renamed over", at: true, do: func(p *place, to int) error {
		f, err := os.OpenFile(p.path+".new", os.O_CREATE|os.O_WRONLY, 0o700) // as a library was that was verified
		if err != nil {
			return err
		}
		if err := errors.Join(p.copyTo(f, to), f.Close(), os.Chtimes(p.path+".new", written, written)); err != nil {
			return err
		}
		return os.Rename(p.path+".new", p.path)
	}},
	{name: "a hard link in its place", at: true, links: true, do: func(p *place, to int) error {
		return errors.Join(os.Link(p.store[to], p.path+".new"), os.Rename(p.path+".new", p.path), os.RemoveAll(p.path+".new"))
	}},
	{name: "a link to another file", at: true, links: true, whole: true, do: func(p *place, to int) error {
		return errors.Join(os.Symlink(p.store[to], p.path+".new"), os.Rename(p.path+".new", p.path))
	}},
	{name: "a link to another folder", at: true, links: true, do: func(p *place, to int) error {
		folder := filepath.Dir(p.path)
		if info, err := os.Lstat(folder); err == nil && info.IsDir() { // what was made first
			if err := os.RemoveAll(folder); err != nil {
				return err
			}
		}
		return errors.Join(os.Symlink(filepath.Dir(p.store[to]), folder+".new"), os.Rename(folder+".new", folder))
	}},
	{name: "folders exchanged", at: true, links: true, do: func(p *place, to int) error {
		other := filepath.Dir(p.path) + ".other"
		if _, err := os.Stat(other); err != nil {
			if err := os.CopyFS(other, os.DirFS(filepath.Dir(p.store[to]))); err != nil {
				return err
			}
			if err := os.Chtimes(filepath.Join(other, filepath.Base(p.path)), written, written); err != nil {
				return err
			}
		}
		return unix.Renameat2(unix.AT_FDCWD, other, unix.AT_FDCWD, filepath.Dir(p.path), unix.RENAME_EXCHANGE)
	}},
}

type swap struct {
	name string
	do   func(p *place, to int) error
	// at says that one file or the other is there at any time, and none in part, so that it can be replaced while it is
	// opened.
	at    bool
	links bool // not of a library, which is also written to where it is
	whole bool // ONNX Runtime reads no weights outside of the model's folder
}

// written is when all files' content was last written, as their times say.
var written = time.Unix(1700000000, 0)

func (p *place) copyTo(f *os.File, to int) error {
	b, err := os.ReadFile(p.store[to])
	if err == nil {
		_, err = f.Write(b)
	}
	return err
}

// other puts the other file there.
func (p *place) other() error {
	p.now = 1 - p.now
	if err := p.swap.do(p, p.now); err != nil {
		return fmt.Errorf("%s: %w", p.swap.name, err)
	}
	if p.swap.at { // it brings the file with its time, which nobody touches then
		return nil
	}
	return os.Chtimes(p.path, written, written)
}

// places are all swaps of each of two models, of which one has its weights in a file of their own.
func places(t *testing.T) (list []*place) {
	t.Helper()
	for _, external := range []bool{false, true} {
		for _, s := range swaps {
			if external && s.whole {
				continue
			}
			base := t.TempDir()
			p := &place{name: s.name, swap: s}
			for v, factor := range []float32{1, 1.5} {
				folder := filepath.Join(base, strconv.Itoa(v))
				writeModel(t, filepath.Join(folder, "model.onnx"), factor, external)
				p.store[v] = filepath.Join(folder, "model.onnx")
				if external {
					p.store[v] = filepath.Join(folder, "w.bin")
				}
				must.Succeed(t, os.Chtimes(p.store[v], written, written))
			}
			live := filepath.Join(base, "live")
			must.Succeed(t, os.CopyFS(live, os.DirFS(filepath.Join(base, "0"))))
			p.path, p.opens = filepath.Join(live, filepath.Base(p.store[0])), filepath.Join(live, "model.onnx")
			must.Succeed(t, os.Chtimes(p.path, written, written))
			list = append(list, p)
		}
	}
	return list
}

// writeModel writes GELU of a product with weights of a factor.
func writeModel(t *testing.T, path string, factor float32, external bool) {
	t.Helper()
	const width, columns = 8, 64
	m := must.Value(onnxtext.Read("t", []byte(`<ir_version: 8, opset_import: ["" : 17]>
	g (float[rows, 8] x) => (float[rows, 64] y) {
		h = MatMul(x, w) a = Div(h, sqrt2) b = Erf(a) c = Add(b, one) d = Mul(h, c) y = Mul(d, half)
	}`)))(t)
	floats := func(name string, dims []int64, list ...float32) {
		var raw []byte
		for _, x := range list {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		}
		m.Graph.Initializer = append(m.Graph.Initializer,
			&onnx.Tensor{Name: proto.String(name), Dims: dims, DataType: proto.Int32(int32(onnx.Tensor_FLOAT)), RawData: raw})
	}
	weights := make([]float32, width*columns)
	for i := range weights {
		weights[i] = factor * float32(i*29%53-26) / 26
	}
	floats("w", []int64{width, columns}, weights...)
	floats("sqrt2", nil, math.Sqrt2)
	floats("one", nil, 1)
	floats("half", nil, 0.5)
	must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o700))
	if w := m.Graph.Initializer[0]; external {
		must.Succeed(t, os.WriteFile(filepath.Join(filepath.Dir(path), "w.bin"), w.RawData, 0o600))
		w.RawData, w.DataLocation = nil, onnx.Tensor_EXTERNAL.Enum()
		w.ExternalData = []*onnx.Entry{{Key: proto.String("location"), Value: proto.String("w.bin")}}
	}
	must.Succeed(t, os.WriteFile(path, must.Value(proto.Marshal(m))(t), 0o600))
}

// An entry is one of the ways by which programs get graft.
type entry interface {
	// open answers with a new session of a model, in a process that has begun.
	open(path string) (answer string, err error)
	// anew begins a process that has not loaded any plugin.
	anew() error
	// end ends it, and says how many sessions were patched.
	end() (patched int, err error)
}

// TestReplaced opens files that were replaced by others of equal size and time, many times: an answer is of the file
// that is there, and no code of a library runs that was not verified.
func TestReplaced(t *testing.T) {
	tries := 15
	if text := os.Getenv(triesVariable); text != "" {
		tries = must.Value(strconv.Atoi(text))(t)
	}
	k := tools(t)
	for _, way := range []string{"Go", "Python", "C"} {
		t.Run(way, func(t *testing.T) {
			data, cache, mark := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "ran")
			library := verifiedPlugin(t, k, data, mark)
			set := append(os.Environ(), ort.EnvTelemetry+"=1", "GRAFT_GRAPH_DEADLINE=600", "GRAFT_LIBRARY="+k.library,
				"GRAFT_BINARY="+k.graft, ort.EnvPath+"="+k.runtime,
				discovery.PathVariable+"="+filepath.Dir(filepath.Dir(library.path)), plugin.UnverifiedVariable+"=",
				"XDG_DATA_HOME="+data, "XDG_CACHE_HOME="+cache)
			var e entry
			switch way {
			case "C":
				e = &process{t: t, set: set,
					args: []string{k.graft, "run", "--verbose", "--", k.linked, "-", "1"}}
			case "Python":
				e = &process{t: t, set: set, args: []string{"../../build/peers/new/bin/python", "programs/replaced.py"}}
			default:
				e = &inside{t: t, folder: filepath.Dir(filepath.Dir(library.path)), data: data}
			}
			replaced(t, e, tries, library, mark)
		})
	}
}

// replaced makes the tries, of models, and for each 50 of them one of a library.
func replaced(t *testing.T, e entry, tries int, library *place, mark string) {
	random := rand.New(rand.NewPCG(1, uint64(tries)))
	all := places(t)
	want := [2]string{}
	for v := range want {
		want[v] = plain(t, all[0].store[v])
	}
	must.Succeed(t, e.anew())
	stale, unverified, opened := 0, 0, 0
	open := func(p *place, what string, allowed ...int) {
		t.Helper()
		opened++
		got, err := e.open(p.opens)
		if err != nil {
			t.Fatalf("%s, %s: %v", p.name, what, err)
		}
		if !slices.ContainsFunc(allowed, func(v int) bool { return near(want[v], got) }) {
			stale++
			t.Errorf("%s, %s (try %d): found %.60s, needed %.60s", p.name, what, opened, got, want[allowed[0]])
		}
		if _, err := os.Stat(mark); err == nil {
			unverified++
			t.Fatalf("%s, %s: code ran that was not verified", p.name, what)
		}
	}
	// during has something happen while a session is made of a place.
	during := func(p *place, what string, do func() error, allowed ...int) {
		t.Helper()
		done, wait := make(chan error), time.Duration(random.Int64N(int64(60*time.Millisecond)))
		go func() {
			time.Sleep(wait)
			done <- do()
		}()
		open(p, what, allowed...)
		must.Succeed(t, <-done)
	}
	regular := slices.DeleteFunc(slices.Clone(swaps), func(s *swap) bool { return s.links })
	withLibrary := func() {
		p := &place{name: "a model", opens: filepath.Join(t.TempDir(), "model.onnx")}
		writeModel(t, p.opens, 1, false)
		must.Succeed(t, e.anew())
		open(p, "with its plugin", 0)
		library.swap = regular[random.IntN(len(regular))]
		if library.swap.at && random.IntN(2) == 0 {
			must.Succeed(t, e.anew())
			during(p, "while its library was replaced: "+library.swap.name, library.other, 0)
		} else {
			must.Succeed(t, library.other())
		}
		open(p, "with another library: "+library.swap.name, 0)
		must.Succeed(t, e.anew())
		open(p, "with another library in a new process: "+library.swap.name, 0)
		must.Succeed(t, library.other())
		must.Succeed(t, e.anew())
	}
	for i := 0; i < tries; {
		if i%(20*len(all)) == 0 {
			if i > 0 { // as files are that were not written just now
				time.Sleep(4 * time.Second)
				t.Logf("%d tries, %d sessions: %d stale answers", i, opened, stale)
			}
			for _, p := range all {
				open(p, "as it was", p.now)
			}
		}
		for _, p := range all[:min(len(all), tries-i)] {
			if p.swap.at && random.IntN(4) == 0 {
				during(p, "replaced while it was opened", p.other, 0, 1)
				open(p, "after it was opened", p.now)
			} else {
				must.Succeed(t, p.other())
				open(p, "replaced", p.now)
			}
			if i++; i%50 == 10 {
				withLibrary()
			}
		}
	}
	patched := must.Value(e.end())(t)
	t.Logf("%d tries, %d sessions, %d of them patched: %d stale answers, %d unverified libraries loaded", tries, opened,
		patched, stale, unverified)
	if patched < tries/2 {
		t.Errorf("%d sessions were patched in %d tries", patched, tries)
	}
}

// verifiedPlugin is the library of a plugin that was verified, and another of its size that says that it ran.
func verifiedPlugin(t *testing.T, k *kit, data, mark string) *place {
	t.Helper()
	base := t.TempDir()
	folder := filepath.Join(base, "plugins", "fused-gelu")
	must.Succeed(t, os.MkdirAll(folder, 0o700))
	for _, name := range []string{"plugin.yaml", "libfused_gelu.so"} {
		data := must.Value(os.ReadFile(filepath.Join("../../build/plugins/fused-gelu", name)))(t)
		must.Succeed(t, os.WriteFile(filepath.Join(folder, name), data, 0o700))
	}
	p := &place{name: "library", path: filepath.Join(folder, "libfused_gelu.so")}
	source := filepath.Join(base, "other.c")
	must.Succeed(t, os.WriteFile(source, fmt.Appendf(nil, `#include <fcntl.h>
__attribute__((constructor)) static void Ran(void) { open(%q, O_CREAT | O_WRONLY, 0600); }
`, mark), 0o600))
	for v := range p.store {
		p.store[v] = filepath.Join(base, strconv.Itoa(v)+".so")
	}
	must.Succeed(t, os.WriteFile(p.store[0], must.Value(os.ReadFile(p.path))(t), 0o700))
	must.Succeed(t, command("gcc", "-shared", "-fPIC", source, "-o", p.store[1]))
	must.Succeed(t, os.Truncate(p.store[1], must.Value(os.Stat(p.store[0]))(t).Size()))
	for _, path := range append(p.store[:], p.path) {
		must.Succeed(t, os.Chtimes(path, written, written))
	}
	cmd := exec.CommandContext(t.Context(), k.graft, "plugin", "verify", folder)
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME"+"="+data, discovery.PathVariable+"="+filepath.Dir(folder))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return p
}

// A process opens the models that are written to it, a path a line, and answers with numbers in a line.
type process struct {
	t    *testing.T
	set  []string
	args []string

	to      io.WriteCloser
	from    *bufio.Reader
	talk    strings.Builder
	cmd     *exec.Cmd
	patched int
}

func (p *process) anew() error {
	_, err := p.end()
	return err
}

func (p *process) begin() (err error) {
	p.cmd = exec.CommandContext(p.t.Context(), p.args[0], p.args[1:]...)
	p.cmd.Env = p.set
	p.talk.Reset()
	p.cmd.Stderr = &p.talk
	if p.to, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.from = bufio.NewReader(out)
	return p.cmd.Start()
}

func (p *process) end() (int, error) {
	if p.cmd != nil {
		p.to.Close()
		if err := p.cmd.Wait(); err != nil {
			return 0, fmt.Errorf("%w: %s", err, p.talk.String())
		}
		p.patched += strings.Count(p.talk.String(), "block replaced") + strings.Count(p.talk.String(), "blocks replaced")
		p.cmd = nil
	}
	return p.patched, nil
}

func (p *process) open(path string) (string, error) {
	if p.cmd == nil {
		if err := p.begin(); err != nil {
			return "", err
		}
	}
	if _, err := fmt.Fprintln(p.to, path); err != nil {
		return "", err
	}
	line, err := p.from.ReadString('\n')
	if err != nil {
		return "", errors.Join(err, p.anew())
	}
	return line, nil
}

// inside is this process, in Go.
type inside struct {
	t            *testing.T
	folder, data string
	patcher      *sessions.Patcher
	count        int
}

func (i *inside) anew() error {
	i.patcher = nil
	return nil
}

func (i *inside) end() (int, error) { return i.count, nil }

func (i *inside) open(path string) (string, error) {
	if i.patcher == nil {
		i.t.Setenv("XDG_DATA_HOME", i.data)
		i.t.Setenv(discovery.PathVariable, i.folder)
		i.t.Setenv(plugin.UnverifiedVariable, "")
		set, err := loaded.Load(nil, false)
		if err != nil && (set == nil || len(set.Refused) == 0) {
			return "", err
		}
		i.patcher = &sessions.Patcher{Plugins: set.Plugins, Options: set.Plan(plan.Options{})}
	}
	return answer(i.t, path, func(r session.Request) (*session.Patch, error) {
		p, err := i.patcher.Patch(r)
		if p != nil && err == nil {
			i.count++
		}
		return p, err
	})
}

// plain is the answer of a model without graft.
func plain(t *testing.T, path string) string {
	t.Helper()
	return must.Value(answer(t, path, nil))(t)
}

func answer(t *testing.T, path string, patch session.Patcher) (string, error) {
	l := must.Value(ort.FindAndOpen(""))(t)
	s, err := session.Open(l, path, session.Options{IntraOpThreads: 1, Patcher: patch})
	if err != nil {
		return "", err
	}
	defer s.Close()
	data := make([]float32, 16)
	for i := range data {
		data[i] = float32(i*37%101-50) / 50
	}
	x, err := ort.NewTensor(l, []int64{2, 8}, data)
	if err != nil {
		return "", err
	}
	defer x.Close()
	out, err := s.Run(context.Background(), map[string]*ort.Value{"x": x})
	if err != nil {
		return "", err
	}
	defer out[0].Close()
	b, err := out[0].Bytes()
	var text strings.Builder
	for at := 0; at < len(b); at += 4 {
		fmt.Fprintf(&text, "%g ", math.Float32frombits(binary.LittleEndian.Uint32(b[at:])))
	}
	return text.String(), err
}

// near says whether answers are of one model.
func near(want, got string) bool {
	w, g := strings.Fields(want), strings.Fields(got)
	if len(w) == 0 || len(w) != len(g) {
		return false
	}
	for i := range w {
		x, _ := strconv.ParseFloat(w[i], 64)
		y, err := strconv.ParseFloat(g[i], 64)
		if err != nil || !(math.Abs(x-y) <= 1e-5+1e-4*math.Abs(x)) {
			return false
		}
	}
	return true
}
