package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opgraft/graft/host/distribute/hub/hubtest"
	"github.com/opgraft/graft/internal/must"
)

// TestHostileLists: a list of files that would lead anywhere else is refused, whole, and nothing is written.
func TestHostileLists(t *testing.T) {
	entry := func(path string, size any, oid string) string {
		name := must.Value(json.Marshal(path))(t)
		return fmt.Sprintf(`{"type": "file", "path": %s, "size": %v, "oid": %q}`, name, size, oid)
	}
	ok := hubtest.GitHash(nil)
	sound := entry("config.json", 0, ok) + "," + entry("model.onnx", 0, ok)
	for _, one := range []struct{ list, want string }{
		{"[" + sound + "," + entry("../x", 0, ok) + "]", "found the file ../x, which leads out of the repository"},
		{"[" + sound + "," + entry("a/../../x", 0, ok) + "]", "which leads out of the repository"},
		{"[" + sound + "," + entry("/etc/passwd", 0, ok) + "]",
			"found the file /etc/passwd, which leads out of the repository"},
		{"[" + sound + "," + entry("a//b", 0, ok) + "]", "which leads out of the repository"},
		{"[" + sound + "," + entry("", 0, ok) + "]", "which leads out of the repository"},
		{"[" + sound + "," + entry(".", 0, ok) + "]", "which leads out of the repository"},
		{"[" + sound + "," + entry("a\x00b", 0, ok) + "]", "which has control characters"},
		{"[" + sound + "," + entry("a\nb", 0, ok) + "]", "which has control characters"},
		{"[" + sound + "," + entry("a\x1b[31m", 0, ok) + "]", "which has control characters"},
		{"[" + sound + "," + strings.Replace(entry("aXb", 0, ok), "X", "\xff", 1) + "]", "which has control characters"},
		{"[" + sound + "," + entry(strings.Repeat("x", 300), 0, ok) + "]", "which is too long"},
		{"[" + sound + "," + entry(strings.Repeat("x/", 600)+"x", 0, ok) + "]", "which is too long"},
		{"[" + sound + "," + entry(strings.Repeat("x/", 100)+"x", 0, ok) + "]", "which is too long"},
		{"[" + sound + "," + entry("config.json", 0, ok) + "]", "found the file config.json twice"},
		{"[" + sound + "," + entry("model.onnx/x", 0, ok) + "]", "found model.onnx as a file and as a folder"},
		{"[" + sound + "," + entry("x", -1, ok) + "]", "found that x has -1 bytes, needed 0 to 4398046511104"},
		{"[" + sound + "," + entry("x", 1<<50, ok) + "]", "found that x has 1125899906842624 bytes"},
		{"[" + sound + "," + entry("x", "1e300", ok) + "]", "found no answer of Hugging Face's API"},
		{"[" + sound + "," + entry("x", 0, "../../x") + "]",
			"found the hash ../../x of x, needed 40 or 64 hexadecimal digits"},
		{"[" + sound + "," + entry("x", 0, strings.ToUpper(ok)) + "]", "needed 40 or 64 hexadecimal digits"},
		{"[" + sound + `,{"type": "file", "path": "x", "size": 1, "oid": "` + ok + `", "lfs": {"size": -5, "oid": "` +
			hubtest.SHA256(nil) + `"}}]`, "found that x has -5 bytes"},
		{`{"error": "x"}`, "found no answer of Hugging Face's API"},
		{`<html>`, "check HF_ENDPOINT, and whether a proxy answers in its place"},
		{"[" + strings.Repeat(" ", mostPage+1) + "]", fmt.Sprintf("found more than %d bytes", mostPage)},
	} {
		server, c := serve(t, map[string]*hubtest.Repository{name: {Commit: hubtest.Commit, Files: map[string][]byte{}}})
		server.Before = func(w http.ResponseWriter, q *http.Request) bool {
			if strings.Contains(q.URL.Path, "/tree/") {
				_, _ = w.Write([]byte(one.list))
			}
			return strings.Contains(q.URL.Path, "/tree/")
		}
		fails(t, c, Request{}, nil, one.want)
		if found := files(t, filepath.Dir(c.s.Cache)); len(found) > 0 {
			t.Errorf("%s: written was %s", one.want, paths(found))
		}
	}
}

// TestHostileAnswers: what a file's server says and gives is compared with the list; what differs gets no name.
func TestHostileAnswers(t *testing.T) {
	data := noise(1, 5000)
	hash := hubtest.SHA256(data)
	other, asked := noise(2, 5000), 0
	for _, one := range []struct {
		name   string
		answer func(w http.ResponseWriter, q *http.Request)
		kind   error
		want   string
	}{
		{"other bytes", func(w http.ResponseWriter, q *http.Request) { _, _ = w.Write(other) }, ErrContent,
			"found the hash " + hubtest.SHA256(other) + ", needed " + hash + "; do not use it"},
		{"more bytes", func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Length", "5001")
			_, _ = w.Write(append(data, 0))
		}, ErrContent, "found 5001 bytes, needed 5000, as the list says"},
		{"bytes without end", func(w http.ResponseWriter, q *http.Request) {
			for i := range data {
				_, _ = w.Write(data[i : i+1])
				if i%1000 == 0 {
					w.(http.Flusher).Flush()
				}
			}
			for {
				if _, err := w.Write(data); err != nil {
					return
				}
				w.(http.Flusher).Flush()
			}
		}, ErrContent, "found more than 5000 bytes, needed that many, as the list says"},
		{"fewer bytes", func(w http.ResponseWriter, q *http.Request) {
			if q.Header.Get("Range") == "" {
				_, _ = w.Write(data[:100])
			} else {
				w.Header().Set("Content-Range", "bytes 100-4999/5000")
				w.WriteHeader(http.StatusPartialContent)
			}
		}, ErrRemote, "broke off after 100 of 5000 bytes"},
		{"halves of two files", func(w http.ResponseWriter, q *http.Request) {
			if q.Header.Get("Range") == "" {
				_, _ = w.Write(data[:100])
				return
			}
			w.Header().Set("Content-Range", "bytes 100-4999/5000")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(other[100:])
		}, ErrContent, "found the hash "},
		{"a part that was not asked for", func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Range", "bytes 0-4999/5000")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(data)
		}, ErrContent, "found the part 'bytes 0-4999/5000', needed bytes 0 to the end of 5000"},
		{"another part", func(w http.ResponseWriter, q *http.Request) {
			if q.Header.Get("Range") == "" {
				_, _ = w.Write(data[:100])
				return
			}
			w.Header().Set("Content-Range", "bytes 0-4999/5000")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(data)
		}, ErrContent, "needed bytes 100 to the end of 5000"},
		{"no part, ever", func(w http.ResponseWriter, q *http.Request) {
			if q.Header.Get("Range") == "" {
				_, _ = w.Write(data[:100])
				return
			}
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		}, ErrRemote, "broke off after 100 of 5000 bytes"},
		{"compressed", func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(data)
		}, ErrContent, "found it encoded as gzip, needed its bytes"},
		{"redirects without end",
			func(w http.ResponseWriter, q *http.Request) { http.Redirect(w, q, q.URL.Path+"x", http.StatusFound) }, ErrContent,
			"the server leads on and on, 8 times"},
		{"a redirect to a file", func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		}, ErrContent, "the server leads to file:///etc/passwd, needed an address"},
		{"a redirect to no address", func(w http.ResponseWriter, q *http.Request) {
			if asked++; asked > 1 { // the same again would be no other
				http.NotFound(w, q)
				return
			}
			w.Header().Set("Location", "http://%zz/\u202e")
			w.WriteHeader(http.StatusFound)
		}, ErrRemote, "cannot be reached: failed to parse Location header"},
		{"a redirect to nothing", func(w http.ResponseWriter, q *http.Request) { w.WriteHeader(http.StatusFound) },
			ErrContent, "the server leads to , needed an address"},
		{"gone", func(w http.ResponseWriter, q *http.Request) { http.NotFound(w, q) }, ErrRemote,
			"the server answers 404 Not Found for a file of org/model; try again"},
		{"control characters in a header", func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("X-Error-Message", "\x1b[31m red")
			w.WriteHeader(http.StatusTeapot)
		}, ErrRemote, "malformed MIME header line"},
		{"text that is none in a header", func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Range", "\xff\u202e")
			w.WriteHeader(http.StatusPartialContent)
		}, ErrContent, `found the part '\xff\u202e', needed bytes 0 to the end of 5000`},
	} {
		r := &hubtest.Repository{Commit: hubtest.Commit,
			Files: map[string][]byte{"config.json": []byte("{}"), "model.onnx": data}}
		server, c := serve(t, map[string]*hubtest.Repository{name: r})
		server.Before = func(w http.ResponseWriter, q *http.Request) bool {
			if strings.Contains(q.URL.Path, "/store/") {
				one.answer(w, q)
			}
			return strings.Contains(q.URL.Path, "/store/")
		}
		t.Run(one.name, func(t *testing.T) {
			fails(t, c, Request{}, one.kind, one.want)
			blob := filepath.Join(c.s.Cache, "models--org--model/blobs", hash)
			for _, path := range []string{blob,
				filepath.Join(c.s.Cache, "models--org--model/snapshots", hubtest.Commit, "model.onnx"),
				filepath.Join(c.s.Cache, "models--org--model/refs/main")} {
				if _, err := os.Lstat(path); err == nil {
					t.Errorf("%s is there", path)
				}
			}
			if info, err := os.Stat(blob + unfinished); err == nil && info.Size() > 5000 {
				t.Errorf("%d bytes were written", info.Size())
			}
		})
	}
}

// TestContradictions: the endpoint's own header against its list.
func TestContradictions(t *testing.T) {
	model := append(graph(t), unknownField(noise(1, 5000))...)
	r := &hubtest.Repository{Commit: hubtest.Commit,
		Files: map[string][]byte{"config.json": []byte("{}"), "model.onnx": model}}
	for key, one := range map[string]struct{ value, want string }{
		"X-Repo-Commit": {strings.Repeat("a", 40),
			"found the commit " + strings.Repeat("a", 40) + ", needed " + hubtest.Commit},
		"X-Linked-Etag": {`"` + strings.Repeat("a", 64) + `"`, "found a file of hash " + strings.Repeat("a", 64)},
		"X-Linked-Size": {"4999", fmt.Sprintf("found a file of 4999 bytes, needed %d, as the list says", len(model))},
	} {
		server, c := serve(t, map[string]*hubtest.Repository{name: r})
		server.Before = func(w http.ResponseWriter, q *http.Request) bool {
			if !strings.HasSuffix(q.URL.Path, "/model.onnx") {
				return false
			}
			w.Header().Set(key, one.value)
			http.Redirect(w, q, server.Store.URL+"/store/"+r.Hash("model.onnx"), http.StatusFound)
			return true
		}
		fails(t, c, Request{}, ErrContent, one.want)
	}
	// One that is no hash says nothing.
	server, c := serve(t, map[string]*hubtest.Repository{name: r})
	server.Before = func(w http.ResponseWriter, q *http.Request) bool {
		if strings.HasSuffix(q.URL.Path, "/config.json") {
			w.Header().Set("ETag", `W/"5f-18c"`)
			_, _ = w.Write([]byte("{}"))
			return true
		}
		return false
	}
	pull(t, c, Request{})
}

// TestToken: the endpoint alone gets it.
func TestToken(t *testing.T) {
	r := bart(t)
	r.Token, r.Page = "hf_right", 10
	server, c := serve(t, map[string]*hubtest.Repository{name: r})
	page := server.Endpoint.URL + "/" + name
	fails(t, c, Request{}, ErrRemote,
		page+": found no such repository, or one that is private, needed its name, or for a private one a token; check "+
			"the name, or set HF_TOKEN")
	c.s.Token, c.s.From = "hf_wrong", "HF_TOKEN"
	fails(t, c, Request{}, ErrRemote, page+": found no such repository for the account whose token HF_TOKEN has")
	c.s.Token = "nonsense"
	fails(t, c, Request{}, ErrRemote, page+": the token of HF_TOKEN is not accepted")
	r.Gated, c.s.Token = true, ""
	fails(t, c, Request{}, ErrRemote,
		page+": the repository is gated (403), needed a token of an account that its owners let in; ask for access on "+
			"that page, and set HF_TOKEN to a token of yours")
	c.s.Token = "hf_right"
	holds(t, pull(t, c, Request{}).Folder, r, ours...)
	fails(t, c, Request{Reference: Reference{name, "v2"}}, ErrChoice,
		page+": found no revision v2, needed a branch, a tag or a commit of it")
	fails(t, c, Request{Reference: Reference{"org/other", "main"}}, ErrRemote, "found no such repository")
	must.Empty(t, server.Leaks())
	// Nor does a list that goes on elsewhere, or a redirect of the API's, carry it away.
	var seen []string
	thief := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { seen = append(seen, q.Header.Get("Authorization")) }))
	defer thief.Close()
	server.Before = func(w http.ResponseWriter, q *http.Request) bool {
		switch {
		case strings.Contains(q.URL.Path, "/tree/"):
			w.Header().Set("Link", "<"+thief.URL+`/x>; rel="next"`)
			_, _ = w.Write([]byte("[]"))
		case strings.Contains(q.URL.Path, "/revision/v2"):
			http.Redirect(w, q, thief.URL+"/x", http.StatusTemporaryRedirect)
		default:
			return false
		}
		return true
	}
	fails(t, c, Request{}, ErrContent, "found the next page at "+thief.URL+"/x, needed one of "+c.s.Endpoint.Host)
	fails(t, c, Request{Reference: Reference{name, "v2"}}, ErrRemote, "found no answer of Hugging Face's API")
	if len(seen) != 1 || seen[0] != "" {
		t.Errorf("the other server saw %q", seen)
	}
}

// A list whose pages never end, or go around, is one clear error.
func TestPagesWithoutEnd(t *testing.T) {
	for _, around := range []bool{true, false} {
		server, c := serve(t, map[string]*hubtest.Repository{name: {Commit: hubtest.Commit}})
		n := 0
		server.Before = func(w http.ResponseWriter, q *http.Request) bool {
			if !strings.Contains(q.URL.Path, "/tree/") {
				return false
			}
			if n++; around {
				n %= 3
			}
			w.Header().Set("Link", fmt.Sprintf(`<%s?cursor=%d>; rel="next"`, q.URL.Path, n))
			_, _ = w.Write([]byte("[]"))
			return true
		}
		want := fmt.Sprintf("goes on after %d pages", mostPages)
		if around {
			want = "goes on after 4 pages"
		}
		fails(t, c, Request{}, ErrContent, want)
		usual := longestList
		longestList = 0 // each page in its time, all of them never
		fails(t, c, Request{}, ErrContent, "goes on after 0 pages")
		longestList = usual
	}
}

// A renamed repository's redirect stays at home, and takes the token along.
func TestRenamed(t *testing.T) {
	r := bart(t)
	r.Token = "hf_right"
	server, c := serve(t, map[string]*hubtest.Repository{name: r})
	c.s.Token = "hf_right"
	server.Before = func(w http.ResponseWriter, q *http.Request) bool {
		if strings.Contains(q.URL.Path, "/old/model/") {
			w.Header().Set("Location", strings.Replace(q.URL.RequestURI(), "old/model", name, 1))
			w.WriteHeader(http.StatusTemporaryRedirect)
			return true
		}
		return false
	}
	done := pull(t, c, Request{Reference: Reference{"old/model", "main"}})
	holds(t, done.Folder, r, ours...)
	if !strings.Contains(done.Folder, "models--old--model") {
		t.Errorf("the folder is %s", done.Folder)
	}
}

// TLS is Go's: a certificate that nobody knows ends at once, and https does not lead to http.
func TestTLS(t *testing.T) {
	asked := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked++
		http.Redirect(w, q, "http://127.0.0.1:1/x", http.StatusFound)
	}))
	defer server.Close()
	u := must.Value(url.Parse(server.URL))(t)
	c := New(&Settings{Endpoint: u, Cache: t.TempDir(), Token: "hf_x"}, Options{})
	c.firstWait = longestWait // which another try would show
	start := time.Now()
	fails(t, c, Request{}, ErrRemote, "cannot be reached: tls: failed to verify certificate")
	if asked > 0 || time.Since(start) > 20*time.Second {
		t.Errorf("%d requests in %v", asked, time.Since(start))
	}
	c.http.Transport = server.Client().Transport
	fails(t, c, Request{}, ErrContent, "the server leads from https to http, to 127.0.0.1:1, needed https")
}

// What stands in the cache in a file's place is not written through.
func TestPlantedLinks(t *testing.T) {
	r := &hubtest.Repository{Commit: hubtest.Commit,
		Files: map[string][]byte{"config.json": []byte("{}"), "model.onnx": graph(t)}}
	_, c := serve(t, map[string]*hubtest.Repository{name: r})
	victim := filepath.Join(t.TempDir(), "victim")
	write(t, victim, []byte("precious"))
	repository := filepath.Join(c.s.Cache, "models--org--model")
	for _, path := range []string{"blobs/" + r.Hash("model.onnx") + unfinished,
		"snapshots/" + hubtest.Commit + "/config.json", "refs/main"} {
		must.Succeed(t, os.MkdirAll(filepath.Dir(filepath.Join(repository, path)), 0o755))
		must.Succeed(t, os.Symlink(victim, filepath.Join(repository, path)))
	}
	fails(t, c, Request{}, ErrLocal, "cannot write: too many levels of symbolic links; remove it")
	must.Succeed(t, os.Remove(filepath.Join(repository, "blobs", r.Hash("model.onnx")+unfinished)))
	holds(t, pull(t, c, Request{}).Folder, r, "config.json", "model.onnx")
	if data, _ := os.ReadFile(victim); string(data) != "precious" {
		t.Errorf("the victim holds %q", data)
	}
}

// TestPlantedFolders: a link out of the cache in the place of one of its folders is not followed when something is
// written. The cache itself may be a link, and so may a folder that stays in it.
func TestPlantedFolders(t *testing.T) {
	r := &hubtest.Repository{Commit: hubtest.Commit, Files: map[string][]byte{"config.json": []byte("{}"),
		"model.onnx": graph(t), "onnx/model_fp16.onnx": graph(t)}}
	for _, folder := range []string{"models--org--model", "models--org--model/blobs", "models--org--model/refs",
		"models--org--model/snapshots", "models--org--model/snapshots/" + hubtest.Commit, ".locks",
		".locks/models--org--model", "models--org--model/graft", "models--org--model/graft/" + hubtest.Commit} {
		_, c := serve(t, map[string]*hubtest.Repository{name: r})
		victim := t.TempDir()
		at := filepath.Join(c.s.Cache, folder)
		must.Succeed(t, os.MkdirAll(filepath.Dir(at), 0o755))
		must.Succeed(t, os.Symlink(victim, at))
		fails(t, c, Request{Variant: "fp16"}, ErrLocal, "cannot write: a link in "+c.s.Cache+" leads out of it; ")
		if left := must.Value(os.ReadDir(victim))(t); len(left) > 0 {
			t.Errorf("%s: %v was written", folder, left)
		}
	}
	_, c := serve(t, map[string]*hubtest.Repository{name: r})
	real := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	must.Succeed(t, os.Symlink(real, link))
	must.Succeed(t, os.MkdirAll(filepath.Join(real, "elsewhere"), 0o755))
	must.Succeed(t, os.Symlink("elsewhere", filepath.Join(real, "models--org--model")))
	c.s.Cache = link
	holds(t, pull(t, c, Request{}).Folder, r, "config.json", "model.onnx")
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"org/model": "org/model@main", "gpt2": "gpt2@main", "a.b/c_d-e@v1.0": "a.b/c_d-e@v1.0",
		"org/model@refs/pr/1": "org/model@refs/pr/1",
		"":                    "", "org/model/x": "", "/model": "", "../model": "", "org/..": "", "org/a..b": "",
		"org/a--b":      "",
		"org/model.git": "", "https://host/org/model": "", "org/mo del": "", "org/m\x1b": "",
		"org/" + strings.Repeat("x", 100): "", "org/model@": "", "org/model@../x": "", "org/model@/x": "",
		"org/model@a b": "", "org/model@a\nb": "", "org/model@-x": "", "org/model@a/../b": "", "org/model@.": "",
	} {
		r, err := Parse(text)
		if want == "" && !errors.Is(err, ErrMisused) || want != "" && (err != nil || r.String() != want) {
			t.Errorf("%q is %v, %v; want %q", text, r, err, want)
		}
	}
}

// TestEnvironment: the variables mean what they mean to Hugging Face's library.
func TestEnvironment(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, "token"), []byte(" hf_file\n"))
	write(t, filepath.Join(home, ".cache/huggingface/token"), []byte("hf_home"))
	for _, one := range []struct{ set, want string }{
		{"HOME=" + home, "https://huggingface.co " + home + "/.cache/huggingface/hub hf_home false"},
		{"HOME=" + home + " XDG_CACHE_HOME=/x", "https://huggingface.co /x/huggingface/hub  false"},
		{"HF_HOME=" + home, "https://huggingface.co " + home + "/hub hf_file false"},
		{"HF_HOME=" + home + " HF_HUB_CACHE=/c HF_TOKEN=hf_set HF_ENDPOINT=https://mirror/hf/ HF_HUB_OFFLINE=1",
			"https://mirror/hf /c hf_set true"},
		{"HF_HOME=" + home + " HUGGINGFACE_HUB_CACHE=/old HUGGING_FACE_HUB_TOKEN=hf_old TRANSFORMERS_OFFLINE=yes",
			"https://huggingface.co /old hf_old true"},
		{"HF_HOME=" + home + " HF_HUB_DISABLE_IMPLICIT_TOKEN=1", "https://huggingface.co " + home + "/hub  false"},
		{"HF_HOME=/none HF_TOKEN_PATH=" + home + "/token", "https://huggingface.co /none/hub hf_file false"},
		{"HOME=" + home + " HF_HOME=~/h", "https://huggingface.co " + home + "/h/hub  false"},
		{"HOME=" + home + " HF_HOME=$HOME/h/$NONE", "https://huggingface.co " + home + "/h/$NONE/hub  false"},
		{"HF_HOME=" + home + " HF_ENDPOINT=http://127.0.0.1:80", "http://127.0.0.1:80 " + home + "/hub hf_file false"},
		{"HF_HOME=" + home + " HF_ENDPOINT=http://mirror",
			"HF_ENDPOINT: found a server without TLS, mirror, and a token (" + home +
				"/token), which anybody between could read, needed https"},
		{"HF_HOME=/none HF_ENDPOINT=http://mirror", "http://mirror /none/hub  false"},
		{"HF_HOME=/none HF_ENDPOINT=mirror", "HF_ENDPOINT: found mirror, needed an address as https://HOST"},
		{"HF_HOME=/none HF_ENDPOINT=ftp://mirror", "HF_ENDPOINT: found ftp://mirror, needed an address as https://HOST"},
		{"HF_HOME=/none HF_ENDPOINT=https://me:secret@mirror", "HF_ENDPOINT: found a user name in an address"},
		{"HF_HOME=/none HF_TOKEN=hf_a\tb", "HF_TOKEN: found a token with blanks or characters that none has"},
		{"", "found no folder for models: $HOME is not defined; set HF_HOME, or HOME"},
	} {
		for _, name := range []string{"HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE",
			"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_ENDPOINT",
			"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_IMPLICIT_TOKEN", "NONE"} {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
		for pair := range strings.SplitSeq(one.set, " ") {
			if name, value, ok := strings.Cut(pair, "="); ok {
				t.Setenv(name, value)
			}
		}
		s, err := Environment()
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprintf("%s %s %s %v", s.Endpoint, s.Cache, s.Token, s.Offline)
		}
		if got != one.want && !(err != nil && strings.HasPrefix(got, one.want)) {
			t.Errorf("%s\nfound %s\nwant  %s", one.set, got, one.want)
		}
	}
}

// answers is a transport that gives one answer to all requests, for a while with a next page.
type answers struct{ list, link string }

func (a *answers) RoundTrip(q *http.Request) (*http.Response, error) {
	header := http.Header{}
	if !strings.Contains(q.URL.RawQuery, "last") {
		header.Set("Link", a.link)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader(a.list)),
		Request: q}, nil
}

// FuzzList: whatever a server lists, what is taken of it stays in the repository, and takes time and memory in
// proportion.
func FuzzList(f *testing.F) {
	f.Add(`[{"type": "file", "path": "model.onnx", "size": 1, "oid": "`+hubtest.GitHash(nil)+`"}]`, "")
	f.Add(`[{"type": "file", "path": "a/b.json", "size": 1, "oid": "", "lfs": {"oid": "`+hubtest.SHA256(
		nil)+`", "size": 3}}]`, `</x?last>; rel="next"`)
	f.Add(`[]`, `<https://other/x?last>; rel="next"`)
	f.Fuzz(func(t *testing.T, list, link string) {
		must.CostLittle(t, len(list)+len(link), func() {
			a := &answers{list, link}
			c := &Client{s: &Settings{Endpoint: &url.URL{Scheme: "https", Host: "host"}}, http: &http.Client{Transport: a}}
			found, err := c.list(context.Background(), Reference{name, "main"}, hubtest.Commit)
			if err != nil {
				return
			}
			for _, one := range found {
				if checkPath(one.Path) != "" || !filepath.IsLocal(one.Path) || !hashPattern.MatchString(one.Hash) || one.Size < 0 {
					t.Errorf("found %+v", one)
				}
			}
			l := newListing(found)
			m, err := l.choose(Reference{name, "main"}, "page", "")
			if err != nil {
				return
			}
			if len(m.graphs) == 0 || len(l.graphFiles(m)) == 0 {
				t.Errorf("a model without graphs: %+v", m)
			}
			for _, as := range append(l.graphFiles(m), l.besides(m)...) {
				if !filepath.IsLocal(m.asGraph(as)) || !filepath.IsLocal(m.asBeside(as)) {
					t.Errorf("%s would lie at %s or %s", as, m.asGraph(as), m.asBeside(as))
				}
			}
		})
	})
}
