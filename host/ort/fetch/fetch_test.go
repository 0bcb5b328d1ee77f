package fetch

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/internal/must"
)

var library = []byte("the library's code")

func sha(b []byte) digest {
	sum := sha256.Sum256(b)
	return digest{"sha256", hex.EncodeToString(sum[:])}
}

func tarball(t *testing.T, member string, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, content := range map[string][]byte{"package/other": []byte("x"), member: content} {
		must.Succeed(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)),
			Typeflag: tar.TypeReg}))
		must.Value(w.Write(content))(t)
	}
	must.Succeed(t, errors.Join(w.Close(), z.Close()))
	return b.Bytes()
}

func wheel(t *testing.T, member string, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create(member)
	if err == nil {
		_, err = w.Write(content)
	}
	must.Succeed(t, errors.Join(err, z.Close()))
	return b.Bytes()
}

// A registry is a folder with stand-ins for npm and python3 that copy an archive, run a snippet
// of shell, and count their calls.
type registry struct {
	t    *testing.T
	bin  string
	path string
}

func newRegistry(t *testing.T) *registry {
	r := &registry{t: t, bin: t.TempDir(), path: os.Getenv("PATH")}
	t.Setenv("PATH", r.bin) // nothing else: the real clients are out of reach
	return r
}

// client installs a stand-in that leaves the archive as name and then runs script.
func (r *registry) client(command, name string, archive []byte, script string) {
	r.t.Helper()
	stored := filepath.Join(r.bin, name)
	if err := os.WriteFile(stored, archive, 0o644); err != nil {
		r.t.Fatal(err)
	}
	text := fmt.Sprintf("#!/bin/sh\nPATH=%q\necho \"$@\" >> %s.calls\n%s\ncp %s .\n", r.path,
		filepath.Join(r.bin, command), script, stored)
	if err := os.WriteFile(filepath.Join(r.bin, command), []byte(text), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

func (r *registry) calls(command string) int {
	b, _ := os.ReadFile(filepath.Join(r.bin, command+".calls"))
	return strings.Count(string(b), "\n")
}

const (
	npmMember = "package/bin/libonnxruntime.so.1"
	pipMember = "onnxruntime/capi/libonnxruntime.so.1"
)

// fixture is a fetcher whose sources pin the archives of the stand-ins.
func fixture(t *testing.T) (fetcher, *registry, *[]string) {
	r := newRegistry(t)
	tgz, whl := tarball(t, npmMember, library), wheel(t, pipMember, library)
	r.client("npm", "onnxruntime-node-1.tgz", tgz, "")
	r.client("python3", "onnxruntime-1.whl", whl, "")
	var mu sync.Mutex
	said := new([]string)
	sum := sha512.Sum512(tgz)
	return fetcher{
		dir: filepath.Join(t.TempDir(), "graft", "onnxruntime"),
		sources: []source{
			{client: npm, requirement: "onnxruntime-node@1", digest: digest{"sha512", hex.EncodeToString(sum[:])},
				member: npmMember, library: sha(library), extract: extractTarGz},
			{client: pip, requirement: "onnxruntime==1", platform: "p", digest: sha(whl),
				member: pipMember, library: sha(library), extract: extractZip},
		},
		report: func(s string) { mu.Lock(); defer mu.Unlock(); *said = append(*said, s) },
	}, r, said
}

// expectClean checks that a failed or finished fetch left no work folder.
func expectClean(t *testing.T, f fetcher, library bool) {
	t.Helper()
	entries, err := os.ReadDir(f.dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != ".lock" && (e.Name() != LibraryName || !library) {
			t.Errorf("%s was left behind", e.Name())
		}
	}
	if library && !f.verified(filepath.Join(f.dir, LibraryName)) {
		t.Error("the library is not in place")
	}
}

func TestFetchWithNpm(t *testing.T) {
	f, r, said := fixture(t)
	path, err := f.run(context.Background())
	if err != nil || path != filepath.Join(f.dir, LibraryName) {
		t.Fatalf("got %q, %v", path, err)
	}
	expectClean(t, f, true)
	must.Value(f.run(context.Background()))(t)
	if r.calls("npm") != 1 || r.calls("python3") != 0 {
		t.Errorf("npm was called %d times and pip %d times for two fetches, want 1 and 0", r.calls("npm"), r.calls("python3"))
	}
	b, _ := os.ReadFile(filepath.Join(r.bin, "npm.calls"))
	for _, want := range []string{"pack", "--ignore-scripts", "onnxruntime-node@1"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("npm was called with %s, without %s", b, want)
		}
	}
	must.Equal(t, *said, []string{"fetching onnxruntime-node@1 with npm",
		"ONNX Runtime " + Version + " is at " + path})
}

func TestFetchFallsBackToPip(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, *registry){
		"npm is missing": func(t *testing.T, r *registry) {
			must.Succeed(t, os.Remove(filepath.Join(r.bin, "npm")))
		},
		"npm fails": func(t *testing.T, r *registry) { r.client("npm", "x.tgz", nil, "exit 1") },
		"npm brings another file": func(t *testing.T, r *registry) {
			r.client("npm", "x.tgz", tarball(t, npmMember, []byte("other")), "")
		},
		"npm brings two files": func(t *testing.T, r *registry) { r.client("npm", "x.tgz", nil, "touch y.tgz") },
	} {
		t.Run(name, func(t *testing.T) {
			f, r, _ := fixture(t)
			prepare(t, r)
			must.Value(f.run(context.Background()))(t)
			expectClean(t, f, true)
			must.Equal(t, r.calls("python3"), 1)
		})
	}
}

// TestFetchFails: each source's failure is told, with the fix, and nothing is left.
func TestFetchFails(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(*fetcher, *registry)
		want    []string
	}{
		{"no clients", func(f *fetcher, r *registry) {
			os.Remove(filepath.Join(r.bin, "npm"))
			os.Remove(filepath.Join(r.bin, "python3"))
		}, []string{"npm: not installed, needed npm in PATH", "pip: not installed, needed python3 or pip3 or pip in PATH"}},
		{"clients fail", func(f *fetcher, r *registry) {
			r.client("npm", "x.tgz", nil, "echo no network >&2; exit 3")
			r.client("python3", "x.whl", nil, "echo no route; exit 4")
		}, []string{"npm pack", "exit status 3: no network", "pip download", "exit status 4: no route"}},
		{"wrong archives", func(f *fetcher, r *registry) {
			f.sources[0].digest, f.sources[1].digest = sha([]byte("a")), sha([]byte("b"))
		}, []string{"onnxruntime-node-1.tgz: found sha256 ", "onnxruntime-1.whl: found sha256 ",
			", needed " + sha([]byte("a")).hex + " of the pinned file"}},
		{"wrong libraries", func(f *fetcher, r *registry) {
			f.sources[0].library, f.sources[1].library = sha([]byte("a")), sha([]byte("b"))
		}, []string{LibraryName + ": found sha256 " + sha(library).hex, " of the pinned file"}},
		{"members missing", func(f *fetcher, r *registry) {
			f.sources[0].member, f.sources[1].member = "package/none", "none"
		}, []string{"unpacking onnxruntime-node-1.tgz: found no member package/none",
			"unpacking onnxruntime-1.whl: found no member none"}},
		{"no archive", func(f *fetcher, r *registry) {
			r.client("npm", "x.tgz", nil, "exit 0")
			r.client("python3", "x.whl", nil, "exit 0")
		}, []string{"npm: found 0 files *.tgz after it ran, needed one", "pip: found 0 files *.whl"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, r, _ := fixture(t)
			c.prepare(&f, r)
			_, err := f.run(context.Background())
			if err == nil {
				t.Fatal("it succeeds")
			}
			for _, want := range append(c.want, "cannot fetch ONNX Runtime "+Version, "; make npm or pip work",
				"GRAFT_ONNXRUNTIME") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %q", err, want)
				}
			}
			expectClean(t, f, false)
		})
	}
}

// TestFetchTruncated cuts the archive, with a digest that fits it, at many places.
func TestFetchTruncated(t *testing.T) {
	f, r, _ := fixture(t)
	tgz := tarball(t, npmMember, bytes.Repeat(library, 50))
	f.sources = f.sources[:1]
	for n := 0; n < len(tgz)-8; n += 7 {
		r.client("npm", "x.tgz", tgz[:n], "")
		f.sources[0].digest = sha(tgz[:n])
		if _, err := f.run(context.Background()); err == nil {
			t.Errorf("an archive of %d bytes cut after %d is accepted", len(tgz), n)
		}
		expectClean(t, f, false)
	}
}

// TestFetchRepairs: what lies in the cache and is not the library is replaced.
func TestFetchRepairs(t *testing.T) {
	f, r, _ := fixture(t)
	must.Succeed(t, os.MkdirAll(filepath.Join(f.dir, workPrefix+"killed"), 0o755))
	must.Succeed(t, os.WriteFile(filepath.Join(f.dir, LibraryName), library[:5], 0o644))
	if _, err := f.run(context.Background()); err != nil || r.calls("npm") != 1 {
		t.Fatalf("%v, %d calls", err, r.calls("npm"))
	}
	expectClean(t, f, true)
}

// TestFetchCancelled: Ctrl-C during the download ends the client and its children, and leaves
// nothing.
func TestFetchCancelled(t *testing.T) {
	f, r, _ := fixture(t)
	alive := filepath.Join(r.bin, "alive")
	r.client("npm", "x.tgz", nil, "(sleep 1; touch "+alive+") & touch started; sleep 30")
	ctx, cancel := context.WithCancel(context.Background())
	f.report = func(string) { time.AfterFunc(300*time.Millisecond, cancel) }
	start := time.Now()
	_, err := f.run(ctx)
	must.Fail(t, err, context.Canceled)
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("it took %v to stop", d)
	}
	if r.calls("npm") != 1 || r.calls("python3") != 0 {
		t.Errorf("after cancelling, npm was called %d times and pip %d times", r.calls("npm"), r.calls("python3"))
	}
	expectClean(t, f, false)
	time.Sleep(1200 * time.Millisecond)
	if _, err := os.Stat(alive); err == nil {
		t.Error("a child of the client went on")
	}
}

// TestFetchConcurrently: one of many fetches, the others wait and find its result.
func TestFetchConcurrently(t *testing.T) {
	f, r, said := fixture(t)
	r.client("npm", "onnxruntime-node-1.tgz",
		func() []byte { b, _ := os.ReadFile(filepath.Join(r.bin, "onnxruntime-node-1.tgz")); return b }(), "sleep 0.5")
	var all sync.WaitGroup
	for range 6 {
		all.Add(1)
		go func() {
			defer all.Done()
			if _, err := f.run(context.Background()); err != nil {
				t.Error(err)
			}
		}()
	}
	all.Wait()
	must.Equal(t, r.calls("npm"), 1)
	must.Equal(t, strings.Count(strings.Join(*said, "\n"), "another process is fetching"), 5)
	expectClean(t, f, true)
}

func TestFetchWaitsForLockOnlyAsLongAsContext(t *testing.T) {
	f, _, _ := fixture(t)
	must.Succeed(t, os.MkdirAll(f.dir, 0o755))
	lock := must.Value(storage.Lock(context.Background(), filepath.Join(f.dir, ".lock"), nil))(t)
	defer lock.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 150*time.Millisecond)
	defer cancel()
	must.Fail(t, must.Error(f.run(ctx)), context.DeadlineExceeded, ".lock")
}

func TestUnwritableCache(t *testing.T) {
	f, _, _ := fixture(t)
	file := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o644))
	f.dir = filepath.Join(file, "graft") // a folder in a file: not even root can make it
	if _, err := f.run(context.Background()); err == nil ||
		!strings.Contains(err.Error(), "cannot write: not a directory, needed a cache folder that can be written") ||
		!strings.Contains(err.Error(), "XDG_CACHE_HOME") {
		t.Errorf("got %v", err)
	}
}

func TestPins(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		sources, err := pinned("linux", arch)
		if err != nil || len(sources) != 2 {
			t.Fatalf("%s: %v, %v", arch, sources, err)
		}
		for _, s := range sources {
			want := map[string]int{"sha256": 64, "sha512": 128}[s.digest.algorithm]
			if len(s.digest.hex) != want || len(s.library.hex) != 64 || s.library.algorithm != "sha256" {
				t.Errorf("%s: %s: digests %v and %v", arch, s.client.name, s.digest, s.library)
			}
		}
	}
	must.Fail(t, must.Error(pinned("plan9", "mips")), "no ONNX Runtime is pinned for plan9/mips")
	t.Setenv("XDG_CACHE_HOME", "/c")
	must.Equal(t, must.Value(Dir())(t), "/c/graft/onnxruntime/"+Version+"/"+runtime.GOOS+"-"+runtime.GOARCH)
}
