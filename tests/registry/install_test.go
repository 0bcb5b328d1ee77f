package registry

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/distribute/registry"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/tests/graftcommand"
)

// shell runs the command as a user of it would, in a folder.
type shell struct {
	t               *testing.T
	folder, program string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{t, t.TempDir(), filepath.Join(t.TempDir(), "graft")}
	must.Succeed(t, graftcommand.Write(s.program))
	t.Setenv("XDG_DATA_HOME", filepath.Join(s.folder, "data"))
	t.Setenv("GRAFT_PLUGIN_PATH", "")
	return s
}

// graft gives what the command prints, where it ends with a code.
func (s *shell) graft(code int, args ...string) (stdout, stderr string) {
	s.t.Helper()
	var out, talk bytes.Buffer
	c := exec.CommandContext(s.t.Context(), s.program, args...)
	c.Dir, c.Stdout, c.Stderr = s.folder, &out, &talk
	_ = c.Run()
	if got := c.ProcessState.ExitCode(); got != code {
		s.t.Fatalf("graft %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, &out, &talk)
	}
	return out.String(), talk.String()
}

// installed are the plugins in the store, and what should not be there.
func (s *shell) installed() string {
	var names []string
	entries, _ := os.ReadDir(filepath.Join(s.folder, "data", "graft", "plugins"))
	for _, e := range entries {
		if e.Name() != ".lock" && e.Name() != ".versions" {
			names = append(names, e.Name())
		}
	}
	return strings.Join(names, " ")
}

// built is the folder of a plugin of this build.
func built(t *testing.T) string {
	t.Helper()
	plugin := must.Value(filepath.Abs("../../build/plugins/fused-gelu"))(t)
	if !manifest.Exists(plugin) {
		t.Fatalf("%s: run make plugins", plugin)
	}
	return plugin
}

// TestInstallFromRegistry: a plugin goes from its author's folder through a registry, or a server, to who trusts the
// author, and to nobody else. A registry that gives what was not asked for, with a signature that is true, is found
// out.
func TestInstallFromRegistry(t *testing.T) {
	plugin := built(t)
	host, s := start(t), newShell(t)
	logIn(t, host, "user", password)
	const archive = "fused-gelu-0.1.0.tar.gz"
	at := "oci://" + host + "/team/fused-gelu:0.1.0"
	s.graft(0, "plugin", "pack", plugin)
	s.graft(0, "plugin", "keygen", "me.key", "--no-password")
	s.graft(0, "plugin", "sign", archive, "--key", "me.key")
	if _, talk := s.graft(1, "plugin", "push", archive, "oci://"+host+"/team/gelu:0.1.0"); !strings.Contains(talk,
		"push it to "+at) {
		t.Errorf("pushed under another name: %s", talk)
	}
	s.graft(0, "plugin", "push", archive, at)
	if out, _ := s.graft(0, "plugin", "push", archive, at); !strings.HasPrefix(out, "there already:") {
		t.Errorf("the same again: %s", out)
	}
	must.Succeed(t, os.Remove(filepath.Join(s.folder, archive)))

	if _, talk := s.graft(3, "plugin", "install", "-q", at); !strings.Contains(talk,
		"graft: "+at+": found a signature of the key ") ||
		!strings.Contains(talk, "install it unchecked: graft plugin install --allow-unsigned "+at) {
		t.Errorf("whom nobody trusts: %s", talk)
	}
	must.Equal(t, s.installed(), "")
	s.graft(0, "plugin", "trust", "add", "me.pub", "--name", "me")
	s.graft(0, "plugin", "install", "-q", at)
	out, _ := s.graft(0, "plugin", "list", "-o", "json")
	var list struct {
		Plugins []struct{ Name, Key string }
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Plugins) != 1 ||
		list.Plugins[0].Name != "fused-gelu" || !strings.HasPrefix(list.Plugins[0].Key, "RW") {
		t.Errorf("installed %s, %v", out, err)
	}
	record, err := os.ReadFile(filepath.Join(s.folder, "data", "graft", "plugins", "fused-gelu", ".graft-record.json"))
	if err != nil || !strings.Contains(string(record), `"source": "`+at+`"`) {
		t.Errorf("the record is %s, %v", record, err)
	}
	s.graft(0, "plugin", "remove", "fused-gelu")

	// The registry calls the version a newer one, and the plugin another.
	retag(t, host, "team/fused-gelu", "0.1.0", "0.2.0")
	if _, talk := s.graft(1, "plugin", "install", "-q", "oci://"+host+"/team/fused-gelu:0.2.0"); !strings.Contains(talk,
		"found fused-gelu 0.1.0, needed the plugin fused-gelu in the version that the tag says") {
		t.Errorf("an older version: %s", talk)
	}
	p := must.Value(client(t).Pull(t.Context(), reference(t, at), t.TempDir()))(t)
	must.Value(client(t).Push(t.Context(), p.Archive, &manifest.Manifest{Name: "other", Version: "0.1.0"},
		reference(t, "oci://"+host+"/team/other:0.1.0")))(t)
	if _, talk := s.graft(1, "plugin", "install", "-q", "oci://"+host+"/team/other:0.1.0"); !strings.Contains(talk,
		"found fused-gelu 0.1.0, needed the plugin other") {
		t.Errorf("another plugin: %s", talk)
	}
	must.Fail(t, must.Error(client(t).Push(t.Context(), p.Archive, &manifest.Manifest{Name: "other", Version: "0.1.0"},
		reference(t, "oci://"+host+"/team/another:0.1.0"))), registry.ErrReference)

	// Archives come from folders and registries, not from servers.
	const server = "https://localhost/fused-gelu-0.1.0.tar.gz"
	if _, talk := s.graft(1, "plugin", "install", "-q", server); !strings.Contains(talk,
		"graft: "+server+": found the scheme https, needed oci://HOST/NAME:VERSION") {
		t.Errorf("from a server: %s", talk)
	}
	must.Equal(t, s.installed(), "")
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "graft-run-*", "*.tar.gz")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// retag gives an artifact's manifest another tag, as who holds a registry can.
func retag(t *testing.T, host, repository, from, to string) {
	t.Helper()
	do := func(method, tag string, body io.Reader) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "https://"+host+"/v2/"+repository+"/manifests/"+tag, body)
		must.Succeed(t, err)
		const kind = "application/vnd.oci.image.manifest.v1+json"
		r.Header.Set("Accept", kind)
		r.Header.Set("Content-Type", kind)
		r.SetBasicAuth("user", password)
		answer, err := http.DefaultClient.Do(r)
		if err != nil || answer.StatusCode >= 300 {
			t.Fatalf("%s %s: %v, %v", method, tag, answer, err)
		}
		return answer
	}
	answer := do(http.MethodGet, from, nil)
	defer answer.Body.Close()
	data := must.Value(io.ReadAll(answer.Body))(t)
	do(http.MethodPut, to, bytes.NewReader(data)).Body.Close()
}
