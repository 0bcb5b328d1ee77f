//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opgraft/graft/host/distribute/hub/hubtest"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/tests/faults"
)

// repository is a folder's, with its graphs below onnx, and again as a variant.
func repository(t *testing.T, folder string) *hubtest.Repository {
	t.Helper()
	r := must.Value(hubtest.Folder(folder))(t)
	for p, data := range maps.Clone(r.Files) {
		if strings.HasSuffix(p, ".onnx") {
			delete(r.Files, p)
			name := filepath.Base(p)
			r.Files["onnx/"+name] = data
			// a field that nobody knows
			r.Files["onnx/"+strings.TrimSuffix(name, ".onnx")+"_q8.onnx"] = append(bytes.Clone(data), 0xfa, 0x3f, 1, 'x')
		}
	}
	return r
}

// pulls runs graft pull against a server, with a cache of its own.
func pulls(t *testing.T, server *hubtest.Server, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	t.Setenv("HF_ENDPOINT", server.Endpoint.URL)
	t.Setenv("HF_HUB_OFFLINE", "")
	t.Setenv("HF_TOKEN", "")
	var out, talk bytes.Buffer
	code = run(append([]string{"pull"}, args...), &out, &talk)
	return out.String(), talk.String(), code
}

// TestPull: the folder that is printed opens, of float32 and of a variant, from the cache and from a folder that is
// named.
func TestPull(t *testing.T) {
	alone(t)
	server := hubtest.New(map[string]*hubtest.Repository{"org/g2p": repository(t, "../../models/g2p"),
		"org/embedder": repository(t, "../../models/encoders/embedder")})
	defer server.Close()
	words := filepath.Join(t.TempDir(), "words")
	write(t, words, "hello\nworld\n")
	for name, one := range map[string]struct {
		folder string
		opens  []string
	}{
		"org/g2p":      {"../../models/g2p", []string{"generate", "FOLDER", "--input", words, "--max-new-tokens", "6"}},
		"org/embedder": {"../../models/encoders/embedder", []string{"embed", "FOLDER", "--input", words, "-o", "json"}},
	} {
		answer := func(folder string) string {
			var out, talk bytes.Buffer
			args := slices.Clone(one.opens)
			args[1] = folder
			must.Equal(t, run(args, &out, &talk), exitOK, args, talk.String())
			return regexp.MustCompile(`(?m)^.*("folder"|"model"|_s"|per_second|tokens_s|"batches").*\n`).ReplaceAllString(
				strings.ReplaceAll(out.String(), folder, ""), "")
		}
		want := answer(one.folder)
		if len(want) < 10 {
			t.Fatalf("%s: the answer is %q", name, want)
		}
		for _, args := range [][]string{{name}, {name, "--variant", "q8"},
			{name + "@" + hubtest.Commit, "--to", filepath.Join(t.TempDir(), "to"), "-q"}} {
			out, talk, code := pulls(t, server, args...)
			if code != exitOK || strings.Count(out, "\n") != 1 {
				t.Fatalf("pull %q: exit code %d, %q, %s", args, code, out, talk)
			}
			must.Equal(t, answer(strings.TrimSuffix(out, "\n")), want, args)
		}
	}
}

// TestPullSays: what is printed, as text and JSON; errors, each in one line, and their exit codes.
func TestPullSays(t *testing.T) {
	alone(t)
	r := repository(t, "../../models/g2p")
	gated := &hubtest.Repository{Commit: hubtest.Commit, Token: "hf_x", Gated: true}
	server := hubtest.New(map[string]*hubtest.Repository{"org/g2p": r, "org/gated": gated,
		"org/weights": {Commit: hubtest.Commit, Files: map[string][]byte{"model.safetensors": nil}}})
	defer server.Close()
	for _, one := range []struct {
		args string
		code int
		want string // in stdout, or of an error in stderr
	}{
		{"org/g2p --dry-run", exitOK, "onnx/encoder_model.onnx         3 MB       to be brought\n"},
		{"org/g2p --dry-run --variant q8", exitOK,
			"onnx/encoder_model_q8.onnx         3 MB       to be brought, as onnx/encoder_model.onnx\n"},
		{"org/g2p", exitOK, "/models--org--g2p/snapshots/" + hubtest.Commit + "\n"},
		{"org/g2p --dry-run", exitOK, "org/g2p at 0123456789ab, float32: 0 bytes of 6 MB to be brought\n"},
		{"org/g2p --variant q8", exitOK, "/models--org--g2p/graft/" + hubtest.Commit + "/q8\n"},
		{"org/g2p --variant nope", exitError,
			"graft: " + server.Endpoint.URL + "/org/g2p: found no variant nope, needed one of float32 (6 MB), q8 (6 MB)\n"},
		{"org/g2p@v9", exitError, "graft: " + server.Endpoint.URL + "/org/g2p: found no revision v9, needed a branch, a " +
			"tag or a commit of it\n"},
		{"org/gated", exitError, "graft: " + server.Endpoint.URL +
			"/org/gated: the repository is gated (403), needed a token of an account that its owners let in; ask for access " +
			"on that page, and set HF_TOKEN to a token of yours\n"},
		{"org/none", exitError, "graft: " + server.Endpoint.URL +
			"/org/none: found no such repository, or one that is private, needed its name, or for a private one a token; " +
			"check the name, or set HF_TOKEN\n"},
		{"org/weights", exitError, "make it: optimum-cli export onnx --model org/weights FOLDER (docs/models.md)\n"},
		{"org/g2p --file *.nothing", exitError, "found no file '*.nothing' among"},
		{"a/b/c", exitUsage, "graft: repository a/b/c, needed ORG/NAME, as in the address of its page; see graft pull " +
			"--help\n"},
		{"org/g2p org/g2p", exitUsage, "needed one repository, ORG/NAME or ORG/NAME@REVISION"},
		{"org/g2p --file x --variant y", exitUsage,
			"graft: --file with --variant, needed one of them; see graft pull --help\n"},
		{"org/g2p --stall 0s", exitUsage, "--stall"},
	} {
		out, talk, code := pulls(t, server, strings.Fields(one.args)...)
		if text := out + talk; code != one.code || !strings.Contains(text, one.want) ||
			code != exitOK && strings.Count(talk, "\n") != 1 {
			t.Errorf("pull %s: exit code %d\n%s%s\nwant %d and %s", one.args, code, out, talk, one.code, one.want)
		}
	}
	out, _, code := pulls(t, server, "org/g2p", "--variant", "q8", "-o", "json")
	var object map[string]any
	if err := json.Unmarshal([]byte(out), &object); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %v", code, err)
	}
	document := must.Value(os.ReadFile("../../docs/json.md"))(t)
	list, _ := object["files"].([]any)
	if len(list) != 5 || object["variant"] != "q8" || object["missing_bytes"] != 0. {
		t.Errorf("found %v", object)
	}
	for _, of := range []any{object, list[0]} {
		for key := range of.(map[string]any) {
			if !regexp.MustCompile("`[^`]*\\b" + key + "\\b[^`]*`").Match(document) {
				t.Errorf("docs/json.md does not have %s of graft pull", key)
			}
		}
	}
}

// TestPullInterrupted: Ctrl-C ends at once, and the same command goes on from there.
func TestPullInterrupted(t *testing.T) {
	alone(t)
	r := repository(t, "../../models/g2p")
	server := hubtest.New(map[string]*hubtest.Repository{"org/g2p": r})
	defer server.Close()
	half := make(chan struct{}, 9)
	large := r.Files["onnx/decoder_model_merged.onnx"]
	server.Before = func(w http.ResponseWriter, q *http.Request) bool {
		if !strings.HasSuffix(q.URL.Path, r.Hash("onnx/decoder_model_merged.onnx")) || q.Header.Get("Range") != "" {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(large)))
		_, _ = w.Write(large[:len(large)/2])
		w.(http.Flusher).Flush()
		half <- struct{}{}
		<-q.Context().Done()
		return true
	}
	cache := t.TempDir()
	cmd := exec.Command(os.Args[0], "pull", "org/g2p")
	cmd.Env = append(os.Environ(), asCommand+"=1", "HF_ENDPOINT="+server.Endpoint.URL, "HF_HUB_OFFLINE=",
		"HF_HUB_CACHE="+cache)
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	must.Succeed(t, cmd.Start())
	select {
	case <-half:
	case <-time.After(time.Minute):
		t.Fatalf("nothing was asked for: %s", talk.String())
	}
	part := filepath.Join(cache, "models--org--g2p/blobs", r.Hash("onnx/decoder_model_merged.onnx")+".incomplete")
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if info, err := os.Stat(part); err == nil && info.Size() == int64(len(large)/2) || time.Now().After(end) {
			break
		}
	}
	must.Succeed(t, cmd.Process.Signal(syscall.SIGINT))
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || out.Len() > 0 ||
		talk.String() != "graft: interrupted; nothing was left half-written; the same command goes on from there\n" {
		t.Errorf("exit code %d, %q, %s", code, out.String(), talk.String())
	}
	t.Setenv("HF_HUB_CACHE", cache)
	if out, talk, code := pulls(t, server, "org/g2p"); code != exitOK || !strings.HasSuffix(out, hubtest.Commit+"\n") {
		t.Errorf("exit code %d, %q, %s", code, out, talk)
	}
	rest := fmt.Sprintf("%s bytes=%d-", r.Hash("onnx/decoder_model_merged.onnx"), len(large)/2)
	must.Equal(t, len(server.Asked(rest)), 1, server.Asked("/store/"))
}

// pulling brings a model into the cache.
func pulling(t *testing.T) *writing { return pullingWith(t) }

// pullingTo brings it into a folder, from another variant's files.
func pullingTo(t *testing.T) *writing { return pullingWith(t, "--to", "out/folder") }

func pullingWith(t *testing.T, more ...string) *writing {
	r := repository(t, "../../models/encoders/reranker")
	server := hubtest.New(map[string]*hubtest.Repository{"org/reranker": r})
	t.Cleanup(server.Close)
	args := append([]string{"pull", "org/reranker", "--variant", "q8", "-q"}, more...)
	// found are the model's files in its folder: those that are there are whole.
	found := func(p *place) (n int, err error) {
		folder := p.at("cache/huggingface/hub/models--org--reranker/graft", hubtest.Commit, "q8")
		if len(more) > 0 {
			folder = p.at("out/folder")
		}
		for name := range r.Files {
			as := strings.Replace(name, "_q8", "", 1)
			data, err := os.ReadFile(filepath.Join(folder, as))
			if err != nil || as == "onnx/model.onnx" && name != "onnx/model_q8.onnx" {
				continue
			}
			if n++; !bytes.Equal(data, r.Files[name]) {
				return n, fmt.Errorf("%s has %d bytes, want %d", as, len(data), len(r.Files[name]))
			}
		}
		blobs := p.at("cache/huggingface/hub/models--org--reranker/blobs")
		for hash, text := range files(t, blobs) {
			if data := []byte(text); !strings.HasSuffix(hash, ".incomplete") && hash != hubtest.SHA256(data) &&
				hash != hubtest.GitHash(data) {
				return n, fmt.Errorf("the blob %s has other content", hash)
			}
		}
		return n, nil
	}
	return &writing{args: args, again: args,
		env:     []string{"HF_ENDPOINT=" + server.Endpoint.URL, "HF_HUB_OFFLINE=", "HF_TOKEN=", "HF_HOME=", "HF_HUB_CACHE="},
		prepare: func(p *place) {},
		whole: func(p *place, run *faults.Run) error {
			n, err := found(p)
			if err == nil && run.Code == 0 && n != 5 {
				err = fmt.Errorf("it went well, and %d files are there", n)
			}
			return err
		},
		after: func(p *place, _ *faults.Run) error {
			n, err := found(p)
			if err == nil && n != 5 {
				err = fmt.Errorf("%d files are there", n)
			}
			for _, in := range []string{"cache", "out"} {
				for name := range files(t, p.at(in)) {
					if strings.HasSuffix(name, ".incomplete") {
						err = errors.Join(err, fmt.Errorf("%s is left", name))
					}
				}
			}
			return errors.Join(err, unfinished(p))
		}}
}
