package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/internal/must"
)

// TestMain has no credentials of who runs the tests.
func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "graft-registry-")
	if err != nil {
		panic(err)
	}
	os.Setenv("DOCKER_CONFIG", folder)
	code := m.Run()
	os.RemoveAll(folder)
	os.Exit(code)
}

func TestParse(t *testing.T) {
	zeros := strings.Repeat("0", 64)
	for text, found := range map[string]string{
		"oci://ghcr.io/me/flash:0.1.0":           "",
		"oci://127.0.0.1:5000/flash:0.1.0_a":     "",
		"oci://ghcr.io/me/flash@sha256:" + zeros: "",
		"oci://ghcr.io/me/flash":                 "found no version",
		"oci://ghcr.io/Me/flash:1":               "found ",
		"oci://ghcr.io":                          "found ",
		"oci://ghcr.io/me/flash@sha256:12":       "found ",
		"https://example.org/flash.tar.gz":       "found the scheme",
		"http://example.org/flash.tar.gz":        "found the scheme",
		"file:///etc/passwd":                     "found the scheme",
		"ftp://example.org/flash.tar.gz":         "found the scheme",
	} {
		_, err := Parse(text)
		var e *diagnostic.Error
		switch {
		case !Is(text):
			t.Errorf("%s is taken for a path", text)
		case found == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case found != "" && (!errors.Is(err, ErrReference) || !errors.As(err, &e) || !strings.HasPrefix(e.Found, found)):
			t.Errorf("%s: got %v, want an error that begins with %q", text, err, found)
		}
	}
	for _, path := range []string{"./flash", "flash.tar.gz", "/a/b", "..", "./a://b"} {
		if Is(path) {
			t.Errorf("%s is taken for a reference", path)
		}
	}
}

// artifact is what a registry of the tests holds.
type artifact struct {
	manifest []byte
	kind     string // of the manifest
	blobs    map[string][]byte
}

func made(change func(*ocispec.Manifest), layers ...[]byte) artifact {
	a := artifact{kind: ocispec.MediaTypeImageManifest, blobs: map[string][]byte{}}
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: a.kind, ArtifactType: ArtifactType,
		Config: ocispec.DescriptorEmptyJSON}
	for i, b := range layers {
		d := digest.FromBytes(b)
		m.Layers = append(m.Layers,
			ocispec.Descriptor{MediaType: []string{archiveType, signatureType}[min(i, 1)], Digest: d, Size: int64(len(b))})
		a.blobs[d.String()] = b
	}
	if change != nil {
		change(&m)
	}
	a.manifest, _ = json.Marshal(m)
	return a
}

// serve is a registry with one artifact; instead may answer in its place.
func serve(t *testing.T, a artifact, instead func(w http.ResponseWriter, r *http.Request) bool) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if instead != nil && instead(w, r) {
			return
		}
		name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		switch {
		case strings.Contains(r.URL.Path, "/manifests/"):
			w.Header().Set("Content-Type", a.kind)
			w.Header().Set("Docker-Content-Digest", digest.FromBytes(a.manifest).String())
			_, _ = w.Write(a.manifest)
		case a.blobs[name] != nil:
			_, _ = w.Write(a.blobs[name])
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return "oci://" + strings.TrimPrefix(s.URL, "http://") + "/flash:0.1.0"
}

func pulled(t *testing.T, reference, folder string) (*Pulled, error) {
	t.Helper()
	c := must.Value(New(Options{PlainHTTP: true, Stall: 300 * time.Millisecond}))(t)
	r := must.Value(Parse(reference))(t)
	return c.Pull(t.Context(), r, folder)
}

func TestPull(t *testing.T) {
	for _, layers := range [][][]byte{{[]byte("archive")}, {[]byte("archive"), []byte("signature")}} {
		a := made(nil, layers...)
		folder := t.TempDir()
		p := must.Value(pulled(t, serve(t, a, nil), folder))(t)
		if want := digest.FromBytes(a.manifest).String(); p.Digest != want || p.Bytes != 7 ||
			(p.Signature != "") != (len(layers) == 2) {
			t.Errorf("got %+v, want the digest %s", p, want)
		}
		for i, path := range []string{p.Archive, p.Signature}[:len(layers)] {
			if b, err := os.ReadFile(path); err != nil || string(b) != string(layers[i]) {
				t.Errorf("%s holds %q (%v), want %q", path, b, err, layers[i])
			}
		}
	}
}

// TestServersThatFail: whatever a registry does, the error says what, and nothing is written.
func TestServersThatFail(t *testing.T) {
	archive, signature := []byte(strings.Repeat("archive", 1000)), []byte("signature")
	right := made(nil, archive, signature)
	blob := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/blobs/") }
	status := func(code int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(code); return true }
	}
	silent := func(r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(10 * time.Second):
		}
	}
	for name, c := range map[string]struct {
		artifact artifact
		instead  func(http.ResponseWriter, *http.Request) bool
		kind     error
		says     string
	}{
		"nothing there":  {right, status(404), ErrRemote, "found nothing there"},
		"unauthorized":   {right, status(401), ErrRemote, "docker login"},
		"forbidden":      {right, status(403), ErrRemote, "docker login"},
		"a broken one":   {right, status(500), ErrRemote, "500"},
		"too many calls": {right, status(429), ErrRemote, "429"},
		"never an answer": {right, func(_ http.ResponseWriter, r *http.Request) bool {
			silent(r)
			return true
		}, ErrRemote, "timeout"},
		"a body that stops": {right, func(w http.ResponseWriter, r *http.Request) bool {
			if !blob(r) {
				return false
			}
			w.Header().Set("Content-Length", fmt.Sprint(len(archive)))
			_, _ = w.Write(archive[:100])
			_ = http.NewResponseController(w).Flush()
			silent(r)
			return true
		}, ErrRemote, "nothing arriving"},
		"a body that is cut": {right, func(w http.ResponseWriter, r *http.Request) bool {
			if !blob(r) {
				return false
			}
			w.Header().Set("Content-Length", fmt.Sprint(len(archive)))
			_, _ = w.Write(archive[:100])
			return true
		}, ErrRemote, "before all bytes"},
		"a body that is short": {right, func(w http.ResponseWriter, r *http.Request) bool {
			if blob(r) {
				_, _ = w.Write(archive[:100])
			}
			return blob(r)
		}, nil, ""},
		"a body that is long": {right, func(w http.ResponseWriter, r *http.Request) bool {
			if blob(r) {
				_ = http.NewResponseController(w).Flush() // without a length
				_, _ = w.Write(append(archive, 1))
			}
			return blob(r)
		}, ErrContent, "other bytes"},
		"other bytes": {right, func(w http.ResponseWriter, r *http.Request) bool {
			if blob(r) {
				_, _ = w.Write([]byte(strings.ToUpper(string(archive))))
			}
			return blob(r)
		}, ErrContent, "other bytes"},
		"an archive without the signature that it tells of": {right, func(w http.ResponseWriter, r *http.Request) bool {
			is := strings.HasSuffix(r.URL.Path, digest.FromBytes(signature).String())
			if is {
				http.NotFound(w, r)
			}
			return is
		}, ErrRemote, "found nothing there"},
		"a manifest of another digest": {right, func(w http.ResponseWriter, r *http.Request) bool {
			if blob(r) {
				return false
			}
			w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
			w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("0", 64))
			_, _ = w.Write(right.manifest)
			return true
		}, nil, ""},
		"a manifest without end": {right, func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
			_, _ = w.Write(make([]byte, mostManifest+2))
			return true
		}, nil, ""},
		"no manifest": {artifact{manifest: []byte("<html>"), kind: ocispec.MediaTypeImageManifest}, nil,
			ErrContent, "found a manifest that cannot be read"},
		"layers that are no list": {artifact{manifest: []byte(`{"layers": {}}`), kind: ocispec.MediaTypeImageManifest}, nil,
			ErrContent, "found a manifest that cannot be read"},
		"an image's index": {artifact{manifest: []byte("{}"), kind: ocispec.MediaTypeImageIndex}, nil, ErrContent,
			"found a manifest"},
		"an image": {made(func(m *ocispec.Manifest) { m.ArtifactType = "" }, archive), nil, ErrContent,
			"found an artifact of type"},
		"no layer":     {made(nil), nil, ErrContent, "found 0 layers"},
		"three layers": {made(nil, archive, signature, archive), nil, ErrContent, "found 3 layers"},
		"layers in another order": {made(func(m *ocispec.Manifest) { m.Layers[0], m.Layers[1] = m.Layers[1], m.Layers[0] },
			archive, signature), nil, ErrContent, "found a layer of type"},
		"a layer of no bytes": {made(func(m *ocispec.Manifest) { m.Layers[0].Size = 0 }, archive), nil, ErrContent,
			"found a layer of 0 bytes"},
		"a layer of fewer than no": {made(func(m *ocispec.Manifest) { m.Layers[0].Size = -1 }, archive), nil, ErrContent,
			"found a layer of -1 bytes"},
		"a layer of too many": {made(func(m *ocispec.Manifest) { m.Layers[0].Size = mostArchive + 1 }, archive), nil,
			ErrContent, "found a layer of"},
		"a signature of too many": {made(func(m *ocispec.Manifest) { m.Layers[1].Size = mostSignature + 1 }, archive,
			signature), nil, ErrContent, "found a layer of"},
		"a digest that is a path": {made(func(m *ocispec.Manifest) { m.Layers[0].Digest = "../../etc/passwd" }, archive),
			nil, ErrContent, "found a layer with the digest"},
		"a digest of another kind": {made(func(m *ocispec.Manifest) { m.Layers[0].Digest = digest.SHA512.FromBytes(archive) },
			archive), nil, ErrContent, "found a layer with the digest"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			_, err := pulled(t, serve(t, c.artifact, c.instead), folder)
			switch {
			case err == nil:
				t.Fatal("no error")
			case c.kind == nil && !errors.Is(err, ErrRemote) && !errors.Is(err, ErrContent),
				c.kind != nil && !errors.Is(err, c.kind), !strings.Contains(err.Error(), c.says):
				t.Errorf("got %v, want a %v that says %q", err, c.kind, c.says)
			}
			if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v (%v)", left, err)
			}
		})
	}
}

// TestPullEnds: a context ends what waits for a server.
func TestPullEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	reference := serve(t, made(nil, []byte("archive")), func(http.ResponseWriter, *http.Request) bool {
		cancel()
		<-ctx.Done()
		return false
	})
	c := must.Value(New(Options{PlainHTTP: true}))(t)
	r := must.Value(Parse(reference))(t)
	must.Fail(t, must.Error(c.Pull(ctx, r, t.TempDir())), context.Canceled)
}

func TestIndex(t *testing.T) {
	entry := func(name, rest string) string {
		return "name: " + name + "\nversion: 0.1.0\ndescription: what it does\nsource: oci://ghcr.io/me/" + name +
			":0.1.0\n" + rest
	}
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	write("plugins/b.yaml", entry("b", "operators: [FlashDecode]\n"))
	write("a.yml", entry("a", "")+"---\n"+entry("c", "platforms: [linux-amd64]\n"))
	write("README.md", "not an entry")
	list := must.Value(ReadIndex(t.Context(), folder))(t)
	var names []string
	for _, e := range list {
		names = append(names, e.Name)
	}
	must.Equal(t, strings.Join(names, " "), "a b c", "names")
	for name, text := range map[string]string{
		"no YAML":             "{",
		"an unknown field":    entry("d", "run: rm\n"),
		"no version":          "name: d\nsource: oci://ghcr.io/me/d:1\n",
		"a source on a disk":  "name: d\nversion: 0.1.0\nsource: /tmp/d\n",
		"a source without":    "name: d\nversion: 0.1.0\nsource: oci://ghcr.io/me/d\n",
		"an escape sequence":  entry("d", "operators: [\"\\u001b[2J\"]\n"),
		"a list":              "- name: d\n",
		"too many bytes":      "# " + strings.Repeat("x", mostIndex),
		"an alias that grows": "name: &a [x, x]\nversion: *a\nsource: *a\n",
	} {
		path := write("bad/"+strings.ReplaceAll(name, " ", "-")+".yaml", text)
		if _, err := ReadIndex(t.Context(), path); !errors.Is(err, ErrContent) || !strings.HasPrefix(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// redirects is a transport whose answers lead on.
type redirects string

func (to redirects) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {string(to)}}, Body: http.NoBody,
		Request: r}, nil
}

// TestRedirects: nothing comes without TLS from a registry with it, and no redirects are followed without end.
func TestRedirects(t *testing.T) {
	for to, want := range map[string]string{
		"http://example.org/x":  "the server leads from https to http, to example.org",
		"https://example.org/x": "the server leads on and on, 8 times",
	} {
		c := must.Value(New(Options{}))(t)
		c.auth.Client.Transport = redirects(to)
		r := must.Value(Parse("oci://registry.example/flash:0.1.0"))(t)
		must.Fail(t, must.Error(c.Pull(t.Context(), r, t.TempDir())), ErrContent, want)
	}
}
