package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/distribute/hub/hubtest"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// asChild has this test's process pull what its arguments say, with the settings of its environment.
const asChild = "GRAFT_TEST_PULL"

func TestMain(m *testing.M) {
	if repository := os.Getenv(asChild); repository != "" {
		os.Exit(pullAsChild(repository))
	}
	os.Exit(m.Run())
}

func pullAsChild(repository string) int {
	s, err := Environment()
	var r Reference
	if err == nil {
		r, err = Parse(repository)
	}
	var done *Pulled
	if err == nil {
		done, err = New(s, Options{}).Pull(context.Background(), Request{Reference: r, To: os.Getenv("GRAFT_TEST_TO")})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(done.Folder)
	return 0
}

// noise is a file that nothing can guess.
func noise(seed uint64, n int) []byte {
	data := make([]byte, n)
	source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = source.Read(data)
	return data
}

// graph is a model with weights in files beside it.
func graph(t testing.TB, locations ...string) []byte {
	t.Helper()
	m := &onnx.Model{IrVersion: proto.Int64(8), Graph: &onnx.Graph{Name: proto.String("g")},
		OpsetImport: []*onnx.OperatorSet{{Version: proto.Int64(17)}}}
	for i, location := range locations {
		m.Graph.Initializer = append(m.Graph.Initializer,
			&onnx.Tensor{Name: proto.String(strconv.Itoa(i)), DataType: proto.Int32(1), Dims: []int64{1},
				DataLocation: onnx.Tensor_EXTERNAL.Enum(),
				ExternalData: []*onnx.Entry{{Key: proto.String("location"), Value: proto.String(location)}}})
	}
	data := must.Value(proto.Marshal(m))(t)
	return data
}

const name = "org/model"

// bart is a repository as those of transformers.js are.
func bart(t testing.TB) *hubtest.Repository {
	t.Helper()
	files := map[string][]byte{".gitattributes": []byte("*.onnx lfs"), "README.md": []byte("a model"),
		"config.json":            []byte(`{"model_type": "bart"}`),
		"generation_config.json": []byte("{}"), "tokenizer.json": noise(1, 5000), "tokenizer_config.json": []byte("{}"),
		"model.safetensors": noise(2, 9000),
		"pytorch_model.bin": noise(3, 9000), "tf_model.h5": noise(4, 9000), "merges.txt": []byte("a b"),
		"onnx/quantize_config.json": []byte("{}")}
	for i, variant := range []string{"", "_fp16", "_q4", "_quantized"} {
		for k, base := range []string{"encoder_model", "decoder_model_merged", "decoder_model", "decoder_with_past_model"} {
			files["onnx/"+base+variant+".onnx"] = append(graph(t, base+variant+".onnx_data"),
				unknownField(noise(uint64(10*i+k), 4000))...)
			files["onnx/"+base+variant+".onnx_data"] = noise(uint64(100+10*i+k), 3_000_000)
		}
	}
	return &hubtest.Repository{Commit: hubtest.Commit, Branch: "refs/pr/1", Files: files}
}

// unknownField is a field of bytes that no reader of ONNX knows, so that graphs differ.
func unknownField(data []byte) []byte {
	n := len(data)
	return append([]byte{0xfa, 0x3f, byte(n) | 0x80, byte(n >> 7)}, data...)
}

// serve starts a server, and gives a client of it with a cache of its own.
func serve(t testing.TB, repositories map[string]*hubtest.Repository) (*hubtest.Server, *Client) {
	t.Helper()
	server := hubtest.New(repositories)
	t.Cleanup(server.Close)
	return server, client(t, server, Options{})
}

func client(t testing.TB, server *hubtest.Server, o Options) *Client {
	t.Helper()
	u := must.Value(url.Parse(server.Endpoint.URL))(t)
	c := New(&Settings{Endpoint: u, Cache: t.TempDir()}, o)
	c.firstWait = time.Millisecond
	return c
}

func pull(t testing.TB, c *Client, q Request) *Pulled {
	t.Helper()
	if q.Repository == "" {
		q.Reference = Reference{name, "main"}
	}
	done := must.Value(c.Pull(context.Background(), q))(t)
	return done
}

// files are those below a folder, through links, with their content.
func files(t testing.TB, folder string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	must.Succeed(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(folder, path)
		if err == nil {
			found[filepath.ToSlash(rel)], err = os.ReadFile(path)
		}
		return err
	}))
	return found
}

func paths(of map[string][]byte) string {
	var list []string
	for p := range of {
		list = append(list, p)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// holds compares a folder with files of a repository, "AS=PATH" where its names are others.
func holds(t testing.TB, folder string, r *hubtest.Repository, want ...string) {
	t.Helper()
	found := files(t, folder)
	for _, one := range want {
		as, path, renamed := strings.Cut(one, "=")
		if !renamed {
			path = as
		}
		if data, ok := found[as]; !ok || !bytes.Equal(data, r.Files[path]) {
			t.Errorf("%s: found %v with %d bytes, want the %d of %s", as, ok, len(data), len(r.Files[path]), path)
		}
		delete(found, as)
	}
	if len(found) > 0 {
		t.Errorf("found more: %s", paths(found))
	}
}

// ours are the files that a pull of bart's brings.
var ours = []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
	"onnx/encoder_model.onnx", "onnx/encoder_model.onnx_data",
	"onnx/decoder_model_merged.onnx", "onnx/decoder_model_merged.onnx_data"}

// What is pulled lies in the cache as Hugging Face's library would have put it there, and is not brought again.
func TestPull(t *testing.T) {
	r := bart(t)
	r.Page = 3
	server, c := serve(t, map[string]*hubtest.Repository{name: r})
	c.s.Token, c.s.From = "hf_secret", "HF_TOKEN"
	var last, total int64
	c.o.Progress = func(done, of int64) { last, total = max(last, done), of }
	done := pull(t, c, Request{})
	if want := filepath.Join(c.s.Cache, "models--org--model", "snapshots", hubtest.Commit); done.Folder != want ||
		done.Variant != "float32" {
		t.Errorf("found the folder %s of %s, want %s", done.Folder, done.Variant, want)
	}
	holds(t, done.Folder, r, ours...)
	if done.Bytes < 6_000_000 || done.Missing != done.Bytes || last != done.Bytes || total != done.Bytes {
		t.Errorf("%d of %d bytes were missing, %d of %d came", done.Missing, done.Bytes, last, total)
	}
	if ref, err := os.ReadFile(filepath.Join(c.s.Cache, "models--org--model/refs/main")); string(ref) != hubtest.Commit ||
		err != nil {
		t.Errorf("refs/main is %q, %v", ref, err)
	}
	for path, up := range map[string]string{"config.json": "../../blobs/",
		"onnx/encoder_model.onnx_data": "../../../blobs/"} {
		if target, err := os.Readlink(filepath.Join(done.Folder, path)); target != up+r.Hash(path) || err != nil {
			t.Errorf("%s leads to %s, %v", path, target, err)
		}
	}
	// two configurations are equal
	if found := files(t, filepath.Join(c.s.Cache, "models--org--model/blobs")); len(found) != len(ours)-1 {
		t.Errorf("blobs are %s", paths(found))
	}
	must.Empty(t, server.Leaks())
	if n := len(server.Asked("/tree/")); n < 5 {
		t.Errorf("the list came in %d pages, want many", n)
	}
	server.Forget()
	again := pull(t, c, Request{Reference: Reference{name, "refs/pr/1"}})
	if asked := server.Asked("/resolve/"); again.Folder != done.Folder || again.Missing != 0 || len(asked) > 0 {
		t.Errorf("again: %d bytes were missing in %s, asked was %v", again.Missing, again.Folder, asked)
	}
	if ref, err := os.ReadFile(filepath.Join(c.s.Cache, "models--org--model/refs/refs/pr/1")); string(
		ref) != hubtest.Commit || err != nil {
		t.Errorf("refs/pr/1 is %q, %v", ref, err)
	}
}

// A variant lies in a folder of links, by the names that programs look for; its files are in the snapshot by their own.
func TestVariant(t *testing.T) {
	r := bart(t)
	_, c := serve(t, map[string]*hubtest.Repository{name: r})
	done := pull(t, c, Request{Variant: "q4"})
	want := []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
		"onnx/encoder_model.onnx=onnx/encoder_model_q4.onnx",
		"onnx/encoder_model_q4.onnx_data", "onnx/decoder_model_merged.onnx=onnx/decoder_model_merged_q4.onnx",
		"onnx/decoder_model_merged_q4.onnx_data"}
	holds(t, done.Folder, r, want...)
	// Links of an earlier choice go, files that someone put there stay.
	for name, target := range map[string]string{"onnx/decoder_with_past_model.onnx": "nowhere",
		"onnx/old.onnx_data": "nowhere"} {
		must.Succeed(t, os.Symlink(target, filepath.Join(done.Folder, name)))
	}
	holds(t, pull(t, c, Request{Variant: "q4"}).Folder, r, want...)
	if info, err := os.Stat(filepath.Join(c.s.Cache, "models--org--model/snapshots", hubtest.Commit,
		"onnx/encoder_model_q4.onnx")); err != nil || info.Size() < 4000 {
		t.Errorf("in the snapshot: %v", err)
	}
}

// TestFoldersOfVariants: each variant has a folder of links of its own, whatever a server calls it.
func TestFoldersOfVariants(t *testing.T) {
	r := &hubtest.Repository{Commit: hubtest.Commit, Files: map[string][]byte{"config.json": []byte("{}")}}
	variants := []string{".", "..", "a--b", "a%2Fb", "fp16", "%2E", "..."}
	for i, v := range variants {
		r.Files["model_"+v+".onnx"] = append(graph(t), unknownField([]byte{byte(i)})...)
	}
	r.Files["a/b/model.onnx"], r.Files["a/config.json"] = graph(t), []byte("{}")
	_, c := serve(t, map[string]*hubtest.Repository{name: r})
	seen := map[string]string{}
	for _, v := range append(variants, "a/b") {
		folder := pull(t, c, Request{Variant: v}).Folder
		above := filepath.Join(c.s.Cache, "models--org--model/graft", hubtest.Commit)
		must.Equal(t, filepath.Dir(folder), above, v)
		seen[folder] = v
	}
	must.Equal(t, len(seen), len(variants)+1, seen)
	for folder, v := range seen {
		if _, err := os.Stat(filepath.Join(folder, "onnx/model.onnx")); err != nil {
			if _, err := os.Stat(filepath.Join(folder, "model.onnx")); err != nil {
				t.Errorf("%s: %v", v, err)
			}
		}
	}
}

// What graphs and modules refer to is brought, whatever it is called.
func TestReferred(t *testing.T) {
	r := &hubtest.Repository{Commit: hubtest.Commit, Files: map[string][]byte{
		"config.json": []byte("{}"), "tokenizer.json": noise(1, 3000),
		"modules.json": []byte(`[{"path": "", "type": "sentence_transformers.models.Transformer"},
			{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}, {"path": "head/last", "type": "sentence_transformers.models.Dense"}]`),
		"1_Pooling/config.json": []byte(`{"a": 1}`), "1_Pooling/README.md": nil, "head/last/config.json": []byte(`{"b": 1}`),
		"head/last/model.safetensors": noise(2, 2000),
		"head/last/pytorch_model.bin": noise(3, 2000), "0_Transformer/model.safetensors": noise(4, 5000),
		"0_Transformer/config.json":   []byte(`{"c": 1}`),
		"onnx/model.onnx":             graph(t, "Constant_7_attr__value", "weights/a.bin"),
		"onnx/Constant_7_attr__value": noise(5, 1500),
		"onnx/weights/a.bin":          noise(6, 1500), "onnx/weights/b.bin": noise(7, 1500),
	}}
	_, c := serve(t, map[string]*hubtest.Repository{name: r})
	holds(t, pull(t, c, Request{}).Folder, r, "config.json", "tokenizer.json", "modules.json", "1_Pooling/config.json",
		"head/last/config.json", "head/last/model.safetensors",
		"0_Transformer/config.json", "onnx/model.onnx", "onnx/Constant_7_attr__value", "onnx/weights/a.bin")
	r.Files["onnx/model.onnx"] = graph(t, "gone.bin")
	_, c = serve(t, map[string]*hubtest.Repository{name: r})
	fails(t, c, Request{}, ErrChoice,
		"the graph onnx/model.onnx has weights in gone.bin, which the repository does not have, "+
			"needed all files of the model")
	r.Files["onnx/model.onnx"] = graph(t, "../../x")
	_, c = serve(t, map[string]*hubtest.Repository{name: r})
	fails(t, c, Request{}, nil, "external data has a location that is not allowed")
}

// Two files that a variant's folder would have under one name are an error, and none takes the other's place.
func TestOneName(t *testing.T) {
	r := &hubtest.Repository{Commit: hubtest.Commit,
		Files: map[string][]byte{"config.json": []byte("{}"), "onnx/model_q4.onnx": graph(t, "model.onnx"),
			"onnx/model.onnx": graph(t)}}
	_, c := serve(t, map[string]*hubtest.Repository{name: r})
	for _, to := range []string{"", t.TempDir()} {
		fails(t, c, Request{Variant: "q4", To: to}, ErrChoice,
			"found that onnx/model.onnx and onnx/model_q4.onnx would both be onnx/model.onnx, needed names that differ; "+
				"bring them by their own: --file PATTERN")
	}
}

// fails expects an error of a kind, in one line, with a text in it.
func fails(t testing.TB, c *Client, q Request, kind error, text string) {
	t.Helper()
	if q.Repository == "" {
		q.Reference = Reference{name, "main"}
	}
	done, err := c.Pull(context.Background(), q)
	if err == nil {
		t.Errorf("no error, but %v; want %q", done, text)
		return
	}
	if kind != nil && !errors.Is(err, kind) || !strings.Contains(err.Error(), text) ||
		diagnostic.Printable(err.Error()) != err.Error() {
		t.Errorf("found the error\n%v\nwant one of %v with\n%s", err, kind, text)
	}
}

func TestPatterns(t *testing.T) {
	r := bart(t)
	_, c := serve(t, map[string]*hubtest.Repository{name: r})
	done := pull(t, c, Request{Files: []string{"*.md", "onnx/encoder_model_q[0-9].onnx"}})
	holds(t, done.Folder, r, "README.md", "onnx/encoder_model_q4.onnx")
	if done.Folder != filepath.Join(c.s.Cache, "models--org--model/snapshots", hubtest.Commit) || done.Variant != "" {
		t.Errorf("the folder is %s of %q", done.Folder, done.Variant)
	}
	fails(t, c, Request{Files: []string{"*.md", "*.gguf"}}, ErrChoice, "found no file '*.gguf' among")
}

func TestDryRun(t *testing.T) {
	r := bart(t)
	server, c := serve(t, map[string]*hubtest.Repository{name: r})
	done := pull(t, c, Request{DryRun: true})
	if done.Folder != "" || len(done.Files) != len(ours) || done.Missing != done.Bytes ||
		len(server.Asked("/resolve/")) > 0 {
		t.Errorf("found %d files in %q, %d bytes missing; asked was %v", len(done.Files), done.Folder, done.Missing,
			server.Asked("/resolve/"))
	}
	if entries, err := os.ReadDir(c.s.Cache); len(entries) > 0 || err != nil {
		t.Errorf("the cache has %v, %v", entries, err)
	}
	to := filepath.Join(t.TempDir(), "new")
	pull(t, c, Request{DryRun: true, To: to})
	if _, err := os.Stat(to); err == nil {
		t.Error("the folder was made")
	}
}

// Whatever is half there is gone on with: parts of every length, parts of other files, and too long ones.
func TestResume(t *testing.T) {
	data := noise(9, 40_000)
	r := &hubtest.Repository{Commit: hubtest.Commit,
		Files: map[string][]byte{"config.json": []byte(`{"a":"` + strings.Repeat("x", 300) + `"}`),
			"onnx/model.onnx": graph(t, "model.onnx_data"), "onnx/model.onnx_data": data}}
	server, c := serve(t, map[string]*hubtest.Repository{name: r})
	for _, at := range []int{0, 1, 2, 1000, 39_999, 40_000, 40_001, 90_000} {
		for _, bad := range []bool{false, true} {
			c.s.Cache = t.TempDir()
			part := append(bytes.Clone(data), noise(1, 50_000)...)[:at]
			if bad && at > 0 {
				part[at/2] ^= 1
			}
			blob := filepath.Join(c.s.Cache, "models--org--model/blobs", r.Hash("onnx/model.onnx_data"))
			write(t, blob+unfinished, part)
			small := filepath.Join(c.s.Cache, "models--org--model/blobs", r.Hash("config.json"))
			write(t, small+unfinished, r.Files["config.json"][:100])
			server.Forget()
			holds(t, pull(t, c, Request{}).Folder, r, "config.json", "onnx/model.onnx", "onnx/model.onnx_data")
			if _, err := os.Stat(blob + unfinished); err == nil {
				t.Errorf("%d: the part is there still", at)
			}
			want := fmt.Sprintf(" bytes=%d-", at)
			if asked := server.Asked("/store/"); at > 0 && at < len(data) && !strings.HasSuffix(asked[0], want) &&
				!strings.HasSuffix(asked[len(asked)-1], want) && !bad {
				t.Errorf("%d: asked was %v", at, asked)
			}
			if at == len(data) && !bad && len(server.Asked("/store/"+r.Hash("onnx/model.onnx_data"))) > 0 {
				t.Errorf("a whole file was asked for: %v", server.Asked("/store/"))
			}
		}
	}
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Succeed(t, os.WriteFile(path, data, 0o644))
}

// A connection that breaks again and again brings the file in parts; a server that knows no parts, from the start.
func TestBreaks(t *testing.T) {
	data := noise(9, 3<<20)
	r := &hubtest.Repository{Commit: hubtest.Commit,
		Files: map[string][]byte{"config.json": []byte("{}"), "onnx/model.onnx": graph(t, "model.onnx_data"),
			"onnx/model.onnx_data": data}}
	server, c := serve(t, map[string]*hubtest.Repository{name: r})
	var mu sync.Mutex
	broke, parts := 0, true
	server.Before = func(w http.ResponseWriter, q *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if !strings.Contains(q.URL.Path, "/store/"+r.Hash("onnx/model.onnx_data")) {
			return false
		}
		if !parts {
			q.Header.Del("Range")
		}
		if broke++; broke > 4 {
			return false
		}
		from := 0
		if _, err := fmt.Sscanf(q.Header.Get("Range"), "bytes=%d-", &from); err == nil {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
			w.WriteHeader(http.StatusPartialContent)
		}
		_, _ = w.Write(data[from : from+100_000])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	for _, parts = range []bool{true, false} {
		broke, c.s.Cache = 0, t.TempDir()
		server.Forget()
		holds(t, pull(t, c, Request{}).Folder, r, "config.json", "onnx/model.onnx", "onnx/model.onnx_data")
		asked := server.Asked("/store/" + r.Hash("onnx/model.onnx_data"))
		if len(asked) != 5 || !strings.HasSuffix(asked[1], " bytes=100000-") ||
			parts && !strings.HasSuffix(asked[4], " bytes=400000-") {
			t.Errorf("parts %v: asked was %v", parts, asked)
		}
	}
	// Without an end of breaking there is an error, and what came stays.
	broke, parts, c.s.Cache = -1000, true, t.TempDir()
	fails(t, c, Request{}, ErrRemote,
		"broke off after 600000 of 3145728 bytes: unexpected EOF; try again; it goes on from there")
	must.Equal(t, must.Value(os.Stat(filepath.Join(c.s.Cache, "models--org--model/blobs",
		r.Hash("onnx/model.onnx_data")+unfinished)))(t).Size(), 600_000)
}

// A busy server is asked again, as it wishes; one that wishes too much is an error at once.
func TestBusy(t *testing.T) {
	r := &hubtest.Repository{Commit: hubtest.Commit,
		Files: map[string][]byte{"config.json": []byte("{}"), "model.onnx": graph(t)}}
	server, c := serve(t, map[string]*hubtest.Repository{name: r})
	var mu sync.Mutex
	var status, times int
	var wish string
	server.Before = func(w http.ResponseWriter, q *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if times--; times < 0 {
			return false
		}
		w.Header().Set("Retry-After", wish)
		w.Header().Set("X-Error-Message", "busy")
		w.WriteHeader(status)
		return true
	}
	for _, one := range []struct {
		status, times int
		wish, err     string
		least         time.Duration
	}{
		{http.StatusServiceUnavailable, 3, "", "", 0},
		{http.StatusTooManyRequests, 1, "1", "", time.Second},
		{http.StatusTooManyRequests, 1, "Mon, 02 Jan 2006 15:04:05 GMT", "", 0},
		{http.StatusTooManyRequests, 1, "3600", "the server answers 429 Too Many Requests: busy; try again later", 0},
		{http.StatusInternalServerError, 6, "", "the server answers 500 Internal Server Error: busy; try again later", 0},
		{http.StatusTeapot, 1, "", "the server answers 418 I'm a teapot: busy", 0},
	} {
		status, times, wish, c.s.Cache = one.status, one.times, one.wish, t.TempDir()
		start := time.Now()
		if one.err != "" {
			fails(t, c, Request{}, ErrRemote, one.err)
		} else {
			holds(t, pull(t, c, Request{}).Folder, r, "config.json", "model.onnx")
		}
		if took := time.Since(start); took < one.least || took > one.least+time.Minute {
			t.Errorf("%d: it took %v", one.status, took)
		}
	}
}

// A server that is silent is not waited for.
func TestStalls(t *testing.T) {
	r := &hubtest.Repository{Commit: hubtest.Commit,
		Files: map[string][]byte{"config.json": []byte("{}"),
			"model.onnx": append(graph(t), unknownField(noise(1, 9000))...)}}
	server, _ := serve(t, map[string]*hubtest.Repository{name: r})
	c := client(t, server, Options{Stall: 500 * time.Millisecond})
	server.Before = func(w http.ResponseWriter, q *http.Request) bool {
		if !strings.Contains(q.URL.Path, "/store/") {
			return false
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(r.Files["model.onnx"])))
		w.(http.Flusher).Flush()
		<-q.Context().Done()
		return true
	}
	start := time.Now()
	fails(t, c, Request{}, ErrRemote, "the server sends nothing for 500ms")
	if took := time.Since(start); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}

// child pulls in a process of its own.
func child(server *hubtest.Server, cache, to string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asChild+"="+name, "HF_ENDPOINT="+server.Endpoint.URL, "HF_HUB_CACHE="+cache,
		"HF_HOME="+cache, "HF_TOKEN=", "GRAFT_TEST_TO="+to)
	return cmd
}

// Killed at any time, a pull leaves nothing that looks finished and is not, and the next one goes on.
func TestKilled(t *testing.T) {
	r := bart(t)
	server := hubtest.New(map[string]*hubtest.Repository{name: r})
	defer server.Close()
	const chunk = 200_000
	chunks := make(chan struct{}, 1000)
	server.Before = func(w http.ResponseWriter, q *http.Request) bool {
		for p, data := range r.Files {
			if !r.Large(data) || !strings.HasSuffix(q.URL.Path, "/store/"+r.Hash(p)) {
				continue
			}
			from := 0
			if _, err := fmt.Sscanf(q.Header.Get("Range"), "bytes=%d-", &from); err == nil {
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
			}
			w.Header().Set("Content-Length", strconv.Itoa(len(data)-from))
			if from > 0 {
				w.WriteHeader(http.StatusPartialContent)
			}
			for ; from < len(data); from += chunk {
				if _, err := w.Write(data[from:min(from+chunk, len(data))]); err != nil {
					break
				}
				w.(http.Flusher).Flush()
				time.Sleep(5 * time.Millisecond)
				select {
				case chunks <- struct{}{}:
				default:
				}
			}
			return true
		}
		return false
	}
	for _, to := range []string{"", "folder"} {
		cache := t.TempDir()
		if to != "" {
			to = filepath.Join(t.TempDir(), to)
		}
		killed := 0
		for done := false; !done; killed++ {
			for len(chunks) > 0 {
				<-chunks
			}
			cmd := child(server, cache, to)
			var out bytes.Buffer
			cmd.Stdout = &out
			must.Succeed(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			if killed < 3 { // before it asks, or while it does
				time.Sleep(time.Duration(1+10*killed) * time.Millisecond)
			} else {
				for left := 1 + killed%5; left > 0 && !done; left-- { // after some of the content
					select {
					case <-chunks:
					case err := <-ended:
						ended <- err
						done = true
					}
				}
			}
			if !done {
				_ = cmd.Process.Kill()
			}
			err := <-ended
			sound(t, r, cache, to)
			if text := strings.TrimSpace(out.String()); done || text != "" { // it may have ended just before
				if done && err != nil {
					t.Fatalf("%v: %s", err, text)
				}
				done = true
				holdsPulled(t, text, r)
			}
		}
		if killed < 8 {
			t.Errorf("it was killed %d times, want more", killed)
		}
		parts := slices.DeleteFunc(server.Asked("/store/"),
			func(one string) bool { return !strings.Contains(one, " bytes=") })
		if len(parts) < 2 {
			t.Errorf("gone on with was %v, of %d tries", parts, killed)
		}
		server.Forget()
	}
}

// holdsPulled compares a folder with what is to be brought, its own folder .cache aside.
func holdsPulled(t *testing.T, folder string, r *hubtest.Repository) {
	t.Helper()
	found := files(t, folder)
	for p := range found {
		if strings.HasPrefix(p, ".cache/") {
			delete(found, p)
		}
	}
	for _, p := range ours {
		if !bytes.Equal(found[p], r.Files[p]) {
			t.Errorf("%s is other than that of the repository", p)
		}
	}
	must.Equal(t, len(found), len(ours), paths(found))
}

// sound compares all that has its name with what the repository has.
func sound(t *testing.T, r *hubtest.Repository, cache, to string) {
	t.Helper()
	if to != "" {
		if _, err := os.Stat(to); err != nil {
			return
		}
		for p, data := range files(t, to) {
			if !strings.HasPrefix(p, ".cache/") && !bytes.Equal(data, r.Files[p]) {
				t.Fatalf("%s has %d bytes of %d", p, len(data), len(r.Files[p]))
			}
		}
		return
	}
	blobs := filepath.Join(cache, "models--org--model/blobs")
	if _, err := os.Stat(blobs); err != nil {
		return
	}
	for hash, data := range files(t, blobs) {
		if !strings.HasSuffix(hash, unfinished) && hubtest.SHA256(data) != hash && hubtest.GitHash(data) != hash {
			t.Fatalf("the blob %s has other %d bytes", hash, len(data))
		}
	}
	if _, err := os.Stat(filepath.Join(cache, "models--org--model/refs/main")); err == nil {
		holds(t, filepath.Join(cache, "models--org--model/snapshots", hubtest.Commit), r, ours...)
	}
}

// Two programs at once bring each file once.
func TestTwoProcesses(t *testing.T) {
	r := bart(t)
	server := hubtest.New(map[string]*hubtest.Repository{name: r})
	defer server.Close()
	server.Before = func(w http.ResponseWriter, q *http.Request) bool {
		if strings.Contains(q.URL.Path, "/store/") {
			time.Sleep(300 * time.Millisecond)
		}
		return false
	}
	for _, to := range []string{"", filepath.Join(t.TempDir(), "folder")} {
		cache := t.TempDir()
		server.Forget()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				out, err := child(server, cache, to).Output()
				if err != nil {
					t.Errorf("%v: %s", err, out)
					return
				}
				holdsPulled(t, strings.TrimSpace(string(out)), r)
			})
		}
		all.Wait()
		if asked := server.Asked("/store/"); len(asked) != 5 {
			t.Errorf("%d files were asked for, want the 5 large ones once: %v", len(asked), asked)
		}
	}
}

// The end of a context is an error of its own, and leaves what goes on.
func TestInterrupted(t *testing.T) {
	r := bart(t)
	_, c := serve(t, map[string]*hubtest.Repository{name: r})
	ctx, cancel := context.WithCancel(context.Background())
	c.o.Progress = func(done, total int64) {
		if done > total/3 {
			cancel()
		}
	}
	must.Fail(t, must.Error(c.Pull(ctx, Request{Reference: Reference{name, "main"}})), context.Canceled)
	c.o.Progress = func(int64, int64) {}
	done := pull(t, c, Request{})
	holds(t, done.Folder, r, ours...)
	if done.Missing == done.Bytes {
		t.Error("nothing was left of the first time")
	}
}

// Without a server, what the cache has is found.
func TestOffline(t *testing.T) {
	r := bart(t)
	server, c := serve(t, map[string]*hubtest.Repository{name: r})
	c.s.Offline = true
	fails(t, c, Request{}, ErrChoice,
		"the cache does not have org/model@main, and HF_HUB_OFFLINE is set, needed a model that was brought before; unset "+
			"HF_HUB_OFFLINE")
	c.s.Offline = false
	first, q4 := pull(t, c, Request{}), pull(t, c, Request{Variant: "q4"})
	server.Close()
	c.s.Offline = true
	if again := pull(t, c, Request{}); again.Folder != first.Folder || again.Missing != 0 {
		t.Errorf("found %s", again.Folder)
	}
	must.Equal(t, pull(t, c, Request{Variant: "q4", Reference: Reference{name, hubtest.Commit}}).Folder, q4.Folder)
	fails(t, c, Request{Variant: "fp16"}, ErrChoice, "found no variant fp16, needed one of float32 (6 MB), q4 (6 MB)")
	to := filepath.Join(t.TempDir(), "folder")
	holdsPulled(t, pull(t, c, Request{To: to}).Folder, r)
	must.Succeed(t, os.Remove(filepath.Join(first.Folder, "onnx/encoder_model.onnx_data")))
	fails(t, c, Request{}, ErrChoice, "which the cache does not have")
	c.s.Offline = false
	fails(t, c, Request{}, ErrRemote, "cannot be reached")
}

// A folder that is named gets files, and never loses one that was not brought.
func TestTo(t *testing.T) {
	r := bart(t)
	server, c := serve(t, map[string]*hubtest.Repository{name: r})
	to := filepath.Join(t.TempDir(), "a", "folder")
	done := pull(t, c, Request{To: to})
	must.Equal(t, done.Folder, to)
	holdsPulled(t, to, r)
	if entries, err := os.ReadDir(c.s.Cache); len(entries) > 0 || err != nil {
		t.Errorf("the cache has %v, %v", entries, err)
	}
	server.Forget()
	if again := pull(t, c, Request{To: to}); again.Missing != 0 || len(server.Asked("/resolve/")) > 0 {
		t.Errorf("again: %d bytes were missing, asked was %v", again.Missing, server.Asked("/resolve/"))
	}
	// Another variant takes the place of what was brought.
	q4 := pull(t, c, Request{To: to, Variant: "q4"})
	if data, err := os.ReadFile(filepath.Join(q4.Folder, "onnx/encoder_model.onnx")); !bytes.Equal(data,
		r.Files["onnx/encoder_model_q4.onnx"]) || err != nil {
		t.Errorf("of q4: %v", err)
	}
	// What was changed, or comes from elsewhere, stays.
	config := filepath.Join(to, "config.json")
	changed := time.Now().Add(time.Hour)
	write(t, config, []byte("mine"))
	must.Succeed(t, os.Chtimes(config, changed, changed))
	fails(t, c, Request{To: to}, ErrLocal,
		"config.json: found another file, needed none, or config.json of org/model; remove it, or name another folder")
	if data, _ := os.ReadFile(config); string(data) != "mine" {
		t.Errorf("it holds %q", data)
	}
	for what, make := range map[string]func(string) error{
		"found a symbolic link": func(p string) error { return os.Symlink("/etc/passwd", p) },
		"found a folder":        func(p string) error { return os.Mkdir(p, 0o755) },
		"found another file":    func(p string) error { return os.WriteFile(p, []byte("other"), 0o644) },
	} {
		to := t.TempDir()
		must.Succeed(t, make(filepath.Join(to, "config.json")))
		fails(t, c, Request{To: to}, ErrLocal, what)
	}
	// The same file, put there by hand, is taken for it.
	by := t.TempDir()
	write(t, filepath.Join(by, "config.json"), r.Files["config.json"])
	write(t, filepath.Join(by, "onnx/encoder_model.onnx_data"), r.Files["onnx/encoder_model.onnx_data"])
	server.Forget()
	holdsPulled(t, pull(t, c, Request{To: by}).Folder, r)
	must.Empty(t, append(server.Asked("/config.json"), server.Asked("/encoder_model.onnx_data")...))
	// Out of the folder leads no link in it.
	out, outside := t.TempDir(), t.TempDir()
	must.Succeed(t, os.Symlink(outside, filepath.Join(out, "onnx")))
	fails(t, c, Request{To: out}, ErrLocal, "path escapes from parent; name another folder")
	if found := files(t, outside); len(found) > 0 {
		t.Errorf("outside are %s", paths(found))
	}
	// Of the cache's files nothing is asked for.
	pull(t, c, Request{})
	server.Forget()
	holdsPulled(t, pull(t, c, Request{To: t.TempDir()}).Folder, r)
	must.Empty(t, server.Asked("/resolve/"))
}

// The room that is needed is said first.
func TestRoom(t *testing.T) {
	server, c := serve(t, map[string]*hubtest.Repository{name: {Commit: hubtest.Commit, Files: map[string][]byte{}}})
	server.Before = func(w http.ResponseWriter, q *http.Request) bool {
		if !strings.Contains(q.URL.Path, "/tree/") {
			return false
		}
		_, _ = io.WriteString(w, `[{"type": "file", "path": "model.onnx", "size": 130, "oid": "`+hubtest.GitHash(
			nil)+`", "lfs": {"size": 4000000000000, "oid": "`+hubtest.SHA256(nil)+`"}}]`)
		return true
	}
	fails(t, c, Request{}, ErrLocal,
		"of free space, needed 4000.0 GB; make room, or name a folder on another disk: HF_HUB_CACHE, --to DIR")
	if len(server.Asked("/resolve/")) > 0 {
		t.Error("it was asked for")
	}
}

// A cache that cannot be written is one clear error, and one that has everything need not be.
func TestReadOnly(t *testing.T) {
	r := bart(t)
	_, c := serve(t, map[string]*hubtest.Repository{name: r})
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, nil)
	cache := c.s.Cache
	c.s.Cache = filepath.Join(file, "hub")
	fails(t, c, Request{}, ErrLocal,
		"cannot write: not a directory; set HF_HUB_CACHE to a folder that can be written, or name one: --to DIR")
	c.s.Cache = cache
	want := pull(t, c, Request{})
	before := times(t, cache)
	must.Equal(t, pull(t, c, Request{}).Folder, want.Folder)
	must.Equal(t, times(t, cache), before)
}

// times are those of a folder's folders and files, but for those of locks.
func times(t testing.TB, folder string) string {
	t.Helper()
	var b strings.Builder
	must.Succeed(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || strings.Contains(path, "/.locks") {
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Fprintln(&b, path, info.ModTime().UnixNano())
		}
		return err
	}))
	return b.String()
}
