// Package registry pushes to and pulls from a real registry, CNCF Distribution, over TLS and with a password.
package registry

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opgraft/graft/host/distribute/registry"
	"github.com/opgraft/graft/host/distribute/signing"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/must"
)

// password is that of the user "user"; hash is its bcrypt.
const (
	password = "a password"
	hash     = "$2a$04$MgoKYzycE32gu7wZQD4QGONZNpNeXzuGn0nxQZDMZXt0eqgBCTz/u"
)

var certificates string // folder of the server's

// TestMain has the process trust a certificate of its own, before anything asks for the system's.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		folder, err := os.MkdirTemp("", "graft-registry-")
		if err == nil {
			defer os.RemoveAll(folder)
			certificates, err = folder, certify(folder)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		os.Setenv("SSL_CERT_FILE", filepath.Join(folder, "certificate.pem"))
		return m.Run()
	}())
}

// certify writes a certificate of 127.0.0.1 and its key.
func certify(folder string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "graft"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(folder, "certificate.pem"),
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(filepath.Join(folder, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
			0o600))
}

// start runs a registry until the test ends, and gives its address when it answers.
func start(t *testing.T) string {
	t.Helper()
	host, _ := startToStop(t)
	return host
}

// startToStop is start of a registry that stop ends before.
func startToStop(t *testing.T) (host string, stop func()) {
	t.Helper()
	folder := t.TempDir()
	program := filepath.Join(folder, "server")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = "server"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	l := must.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := l.Addr().String()
	l.Close()
	users, config := filepath.Join(folder, "users"), filepath.Join(folder, "config.yaml")
	text := fmt.Sprintf(`version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: %s}}
auth: {htpasswd: {realm: graft, path: %s}}
http: {addr: %s, secret: of the tests, tls: {certificate: %s, key: %s}}
`, filepath.Join(folder, "content"), users, address, filepath.Join(certificates, "certificate.pem"), filepath.Join(certificates, "key.pem"))
	must.Succeed(t, errors.Join(os.WriteFile(users, []byte("user:"+hash+"\n"), 0o600),
		os.WriteFile(config, []byte(text), 0o600)))
	var talk bytes.Buffer
	server := exec.CommandContext(t.Context(), program, "serve", config)
	server.Stdout, server.Stderr = &talk, &talk
	must.Succeed(t, server.Start())
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	stop = sync.OnceFunc(func() {
		_ = server.Process.Kill()
		<-ended
	})
	t.Cleanup(stop)
	// only whether it is there
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for {
		answer, err := client.Get("https://" + address + "/v2/")
		if err == nil {
			answer.Body.Close()
			return address, stop
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the registry ended: %v\n%s", err, &talk)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// logIn writes Docker's configuration as `docker login` does.
func logIn(t *testing.T, host, user, word string) {
	t.Helper()
	folder := t.TempDir()
	t.Setenv("DOCKER_CONFIG", folder)
	text := fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, host, base64.StdEncoding.EncodeToString([]byte(user+":"+word)))
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "config.json"), []byte(text), 0o600))
}

func client(t *testing.T) *registry.Client {
	t.Helper()
	c := must.Value(registry.New(registry.Options{}))(t)
	return c
}

func reference(t *testing.T, text string) registry.Reference {
	t.Helper()
	r := must.Value(registry.Parse(text))(t)
	return r
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestRegistry(t *testing.T) {
	host := start(t)
	folder := t.TempDir()
	archive := write(t, filepath.Join(folder, "flash.tar.gz"), strings.Repeat("archive", 1<<17))
	m := &manifest.Manifest{Name: "flash", Version: "0.1.0+abc"}
	r := reference(t, "oci://"+host+"/team/flash:0.1.0_abc")

	t.Setenv("DOCKER_CONFIG", t.TempDir())
	for who, set := range map[string]func(){
		"nobody":                  func() {},
		"one with another's word": func() { logIn(t, host, "user", "wrong") },
	} {
		set()
		if _, err := client(t).Push(t.Context(), archive, m, r); !errors.Is(err, registry.ErrRemote) ||
			!strings.Contains(err.Error(), "docker login") {
			t.Errorf("%s pushed: %v", who, err)
		}
		if _, err := client(t).Pull(t.Context(), r, t.TempDir()); !errors.Is(err, registry.ErrRemote) ||
			!strings.Contains(err.Error(), "docker login") {
			t.Errorf("%s pulled: %v", who, err)
		}
	}
	logIn(t, host, "user", password)
	c := client(t)
	must.Fail(t, must.Error(c.Pull(t.Context(), r, t.TempDir())), registry.ErrRemote, "found nothing there")
	if _, err := c.Push(t.Context(), archive, m, reference(t, "oci://"+host+"/team/flash:0.2.0")); !errors.Is(err,
		registry.ErrReference) || !strings.Contains(err.Error(), "flash:0.1.0_abc") {
		t.Errorf("a tag that is not the version: %v", err)
	}
	first := must.Value(c.Push(t.Context(), archive, m, r))(t)
	if first.Known || first.Signed {
		t.Errorf("got %+v", first)
	}
	if again, err := c.Push(t.Context(), archive, m, r); err != nil || !again.Known || again.Digest != first.Digest {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	write(t, archive+signing.Suffix, "signature")
	must.Fail(t, must.Error(c.Push(t.Context(), archive, m, r)), registry.ErrExists)
	m.Version = "0.2.0"
	second, err := c.Push(t.Context(), archive, m, reference(t, "oci://"+host+"/team/flash:0.2.0"))
	if err != nil || !second.Signed {
		t.Fatalf("got %+v, %v", second, err)
	}
	for text, signed := range map[string]bool{
		"oci://" + host + "/team/flash:0.1.0_abc":        false,
		"oci://" + host + "/team/flash:0.2.0":            true,
		"oci://" + host + "/team/flash@" + second.Digest: true,
	} {
		p, err := c.Pull(t.Context(), reference(t, text), t.TempDir())
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		want, _ := os.ReadFile(archive)
		if got, err := os.ReadFile(p.Archive); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: the archive is another (%v)", text, err)
		}
		got, err := os.ReadFile(p.Archive + signing.Suffix)
		if signed && string(got) != "signature" || !signed && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the signature is %q (%v)", text, got, err)
		}
	}

	index := reference(t, "oci://"+host+"/team/index:latest")
	for _, version := range []string{"0.1.0", "0.2.0"} { // an index moves on
		file := write(t, filepath.Join(folder, "index.yaml"),
			"name: flash\nversion: "+version+"\ndescription: attention\nsource: oci://"+host+"/team/flash:"+version+"\n")
		must.Value(c.PushIndex(t.Context(), file, index))(t)
		at := must.Value(c.PullIndex(t.Context(), index, t.TempDir()))(t)
		list, err := registry.ReadIndex(t.Context(), at)
		if err != nil || len(list) != 1 || list[0].Version != version {
			t.Errorf("got %+v, %v", list, err)
		}
	}
	must.Fail(t, must.Error(c.PullIndex(t.Context(), r, t.TempDir())), registry.ErrContent)
}
