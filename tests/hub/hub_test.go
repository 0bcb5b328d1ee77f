package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/opgraft/graft/host/distribute/hub"
	"github.com/opgraft/graft/host/distribute/hub/hubtest"
	"github.com/opgraft/graft/internal/must"
)

const name = "org/model"

// wanted are the files that both bring.
var wanted = []string{"config.json", "generation_config.json", "onnx/decoder_model_merged.onnx",
	"onnx/encoder_model.onnx", "tokenizer.json"}

// pair is one server, one cache, and both programs.
type pair struct {
	t          *testing.T
	python     string
	server     *hubtest.Server
	repository *hubtest.Repository
	cache      string
}

func newPair(t *testing.T) *pair {
	t.Helper()
	python, err := filepath.Abs("../../build/peers/hub/bin/python")
	if err == nil {
		_, err = os.Stat(python)
	}
	if err != nil {
		t.Skipf("huggingface_hub is not installed: %v; run make peers", err)
	}
	r := must.Value(hubtest.Folder("../../models/g2p"))(t)
	r.Small = 100_000
	for _, graph := range []string{"encoder_model.onnx", "decoder_model_merged.onnx"} { // as repositories have them
		r.Files["onnx/"+graph] = r.Files[graph]
		delete(r.Files, graph)
		another := append(bytes.Clone(r.Files["onnx/"+graph]), 0xfa, 0x3f, 1, 'x') // a field that nobody knows
		r.Files["onnx/"+strings.Replace(graph, ".onnx", "_fp16.onnx", 1)] = another
	}
	p := &pair{t: t, python: python, server: hubtest.New(map[string]*hubtest.Repository{name: r}), repository: r,
		cache: t.TempDir()}
	t.Cleanup(p.server.Close)
	return p
}

// theirs runs Hugging Face's library.
func (p *pair) theirs(into any, args ...string) {
	p.t.Helper()
	cmd := exec.Command(p.python, append([]string{"library.py"}, args...)...)
	cmd.Env = append(os.Environ(), "HF_ENDPOINT="+p.server.Endpoint.URL, "HF_HUB_CACHE="+p.cache, "HF_HOME="+p.cache,
		"HF_HUB_DISABLE_TELEMETRY=1", "HF_HUB_DISABLE_PROGRESS_BARS=1", "HF_TOKEN=", "NO_PROXY=*")
	var talk bytes.Buffer
	cmd.Stderr = &talk
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		p.t.Errorf("library.py %s: %v\n%s%s", strings.Join(args, " "), err, out, talk.String())
	}
}

// ours is graft's.
func (p *pair) ours(q hub.Request) *hub.Pulled {
	p.t.Helper()
	u, err := url.Parse(p.server.Endpoint.URL)
	if err != nil {
		p.t.Fatal(err)
	}
	q.Reference = hub.Reference{Repository: name, Revision: "main"}
	done, err := hub.New(&hub.Settings{Endpoint: u, Cache: p.cache}, hub.Options{}).Pull(context.Background(), q)
	if err != nil {
		p.t.Error(err)
		return &hub.Pulled{}
	}
	return done
}

// asked are the files whose content was asked for since the last time.
func (p *pair) asked() []string {
	list := p.server.Asked("GET /store/")
	for _, one := range p.server.Asked("GET /" + name + "/resolve/") {
		if path := one[strings.LastIndex(one, hubtest.Commit)+len(hubtest.Commit)+1:]; !p.repository.Large(
			p.repository.Files[path]) {
			list = append(list, one)
		}
	}
	p.server.Forget()
	return list
}

type scanned struct {
	Warnings     []string
	Repositories map[string]struct {
		Bytes    int64
		Refs     map[string]string
		Files    []string
		Detached []string
	}
}

func (p *pair) size(paths []string) (n int64) {
	for _, path := range paths {
		n += int64(len(p.repository.Files[path]))
	}
	return n
}

// TestTheyReadOurs: the library finds what graft pulled, takes it for its own, and deletes it.
func TestTheyReadOurs(t *testing.T) {
	p := newPair(t)
	done := p.ours(hub.Request{})
	p.ours(hub.Request{Variant: "fp16", Files: nil, DryRun: true})
	var local string
	if p.theirs(&local, "local", name); local != done.Folder {
		t.Errorf("they find %s, graft's is %s", local, done.Folder)
	}
	var found scanned
	p.theirs(&found, "scan")
	got := found.Repositories[name]
	if len(found.Warnings) > 0 || got.Bytes != p.size(wanted) || !slices.Equal(got.Files, wanted) ||
		got.Refs["main"] != hubtest.Commit || len(got.Detached) > 0 {
		t.Errorf("they find %+v; want %d bytes in %v", found, p.size(wanted), wanted)
	}
	p.server.Forget()
	var again string
	p.theirs(&again, append([]string{"download", name}, wanted...)...)
	if asked := p.asked(); again != done.Folder || len(asked) > 0 {
		t.Errorf("they bring %v again, to %s", asked, again)
	}
	// Of a view, too, and together with files that they bring.
	view := p.ours(hub.Request{Files: []string{"onnx/*_fp16.onnx"}})
	p.asked()
	p.theirs(&again, append([]string{"download", name}, "*")...)
	asked := p.asked()
	if again != view.Folder || len(asked) == 0 ||
		slices.ContainsFunc(asked, func(one string) bool { return strings.Contains(one, "/store/") }) {
		t.Errorf("they bring %v, to %s; want the small files that graft left", asked, again)
	}
	after := p.ours(hub.Request{})
	if after.Missing != 0 || after.Folder != done.Folder {
		t.Errorf("graft brings %d bytes again, to %s", after.Missing, after.Folder)
	}
	var gone scanned
	if p.theirs(&gone, "delete", name); len(gone.Repositories) > 0 {
		t.Errorf("after they delete it there is %+v", gone.Repositories)
	}
	if whole := p.ours(hub.Request{}); whole.Missing != whole.Bytes {
		t.Errorf("after they deleted it %d of %d bytes are brought", whole.Missing, whole.Bytes)
	}
}

// TestWeReadTheirs: graft takes what the library brought.
func TestWeReadTheirs(t *testing.T) {
	p := newPair(t)
	var theirs string
	p.theirs(&theirs, append([]string{"download", name}, wanted...)...)
	p.server.Forget()
	done := p.ours(hub.Request{})
	if asked := p.asked(); done.Folder != theirs || done.Missing != 0 || len(asked) > 0 {
		t.Errorf("graft brings %v to %s; theirs is %s", asked, done.Folder, theirs)
	}
	for _, f := range done.Files {
		if data, err := os.ReadFile(filepath.Join(done.Folder, f.Path)); !bytes.Equal(data, p.repository.Files[f.Path]) ||
			err != nil {
			t.Errorf("%s: %v", f.Path, err)
		}
	}
	var scan, before scanned
	p.theirs(&before, "scan")
	p.ours(hub.Request{Variant: "fp16"})
	p.theirs(&scan, "scan")
	if len(scan.Warnings) > 0 || len(scan.Repositories[name].Files) != len(wanted)+2 {
		t.Errorf("with a variant they find %s", cmp.Diff(before, scan))
	}
}

// TestFolders: a folder that one brought, the other takes for its own.
func TestFolders(t *testing.T) {
	p := newPair(t)
	for _, first := range []string{"ours", "theirs"} {
		folder := filepath.Join(t.TempDir(), "folder")
		var path string
		ours := func() { path = p.ours(hub.Request{To: folder}).Folder }
		theirs := func() { p.theirs(&path, append([]string{"folder", folder, name}, wanted...)...) }
		order := []func(){ours, theirs}
		if first == "theirs" {
			slices.Reverse(order)
		}
		order[0]()
		p.asked()
		order[1]()
		if asked := p.asked(); len(asked) > 0 || path != folder {
			t.Errorf("after %s: %v is brought to %s", first, asked, path)
		}
		for _, name := range wanted {
			if data, err := os.ReadFile(filepath.Join(folder, name)); !bytes.Equal(data, p.repository.Files[name]) ||
				err != nil {
				t.Errorf("after %s: %s: %v", first, name, err)
			}
		}
	}
}

// TestAtOnce: both at the same time bring a file once, whoever comes first.
func TestAtOnce(t *testing.T) {
	p := newPair(t)
	var once sync.Once
	begun := make(chan struct{})
	p.server.Before = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/store/") {
			once.Do(func() { close(begun) })
			time.Sleep(2 * time.Second)
		}
		return false
	}
	for range 2 {
		p.cache, once, begun = t.TempDir(), sync.Once{}, make(chan struct{})
		var both sync.WaitGroup
		var theirs string
		var ours *hub.Pulled
		both.Go(func() { p.theirs(&theirs, append([]string{"download", name}, wanted...)...) })
		both.Go(func() { <-begun; ours = p.ours(hub.Request{}) })
		both.Wait()
		large := 0
		for _, path := range wanted {
			if p.repository.Large(p.repository.Files[path]) {
				large++
			}
		}
		if asked := p.server.Asked("GET /store/"); ours.Folder != theirs || len(asked) != large {
			t.Errorf("%s and %s; %d files were asked for in %d requests: %v", ours.Folder, theirs, large, len(asked), asked)
		}
		p.server.Forget()
	}
}
