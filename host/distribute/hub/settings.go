package hub

import (
	"cmp"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
)

// defaultEndpoint is Hugging Face's own.
const defaultEndpoint = "https://huggingface.co"

// Settings say where models come from and where they are stored.
type Settings struct {
	Endpoint *url.URL
	Token    string // "" for none
	From     string // where the token is from: a variable or a file
	Cache    string // folder of repositories
	Offline  bool   // no server is asked
}

// Environment reads the variables of Hugging Face's library: HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HOME,
// HF_HUB_CACHE, HF_HUB_OFFLINE, HF_HUB_DISABLE_IMPLICIT_TOKEN, and the older names of these.
func Environment() (*Settings, error) {
	home, err := homeFolder()
	if err != nil {
		return nil, err
	}
	s := &Settings{Cache: expand(first("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"))}
	if s.Cache == "" {
		s.Cache = filepath.Join(home, "hub")
	}
	if s.Cache, err = filepath.Abs(s.Cache); err != nil {
		return nil, err
	}
	s.Offline = isTrue(cmp.Or(os.Getenv("HF_HUB_OFFLINE"), os.Getenv("TRANSFORMERS_OFFLINE")))
	if s.Endpoint, err = endpoint(cmp.Or(os.Getenv("HF_ENDPOINT"), defaultEndpoint)); err != nil {
		return nil, err
	}
	return s, s.findToken(home)
}

// homeFolder is the folder of Hugging Face's files.
func homeFolder() (string, error) {
	if home := expand(os.Getenv("HF_HOME")); home != "" {
		return home, nil
	}
	if cache := expand(os.Getenv("XDG_CACHE_HOME")); cache != "" {
		return filepath.Join(cache, "huggingface"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", &diagnostic.Error{Kind: ErrMisused, Found: "found no folder for models: " + err.Error(),
			Fix: "set HF_HOME, or HOME", Cause: err}
	}
	return filepath.Join(home, ".cache", "huggingface"), nil
}

// first is the value of the first variable that is set.
func first(names ...string) string {
	for _, name := range names {
		if value := os.Getenv(name); value != "" {
			return value
		}
	}
	return ""
}

// expand puts variables and the home folder in place, as Python's expandvars and expanduser do.
func expand(path string) string {
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || rest[0] == '/') {
		if home, err := os.UserHomeDir(); err == nil {
			path = home + rest
		}
	}
	return os.Expand(path, func(name string) string {
		if value, ok := os.LookupEnv(name); ok {
			return value
		}
		return "$" + name
	})
}

func isTrue(value string) bool {
	switch strings.ToUpper(value) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}

// endpoint parses the address of a server.
func endpoint(text string) (*url.URL, error) {
	bad := func(found string) (*url.URL, error) {
		return nil, misused("HF_ENDPOINT", found, "an address as https://HOST", "")
	}
	u, err := url.Parse(strings.TrimRight(text, "/"))
	switch {
	case err != nil:
		return bad("found " + quoted(text))
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return bad("found " + quoted(text))
	case u.User != nil:
		return bad("found a user name in an address")
	case u.RawQuery != "" || u.Fragment != "":
		return bad("found an address with ? or #")
	}
	return u, nil
}

// findToken reads the token of the environment, or that of the file where hf auth login writes it.
func (s *Settings) findToken(home string) error {
	for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if token := strings.TrimSpace(os.Getenv(name)); token != "" {
			s.Token, s.From = token, name
			break
		}
	}
	if s.Token == "" && !isTrue(os.Getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		path := cmp.Or(expand(os.Getenv("HF_TOKEN_PATH")), filepath.Join(home, "token"))
		data, err := storage.ReadRegular(path, 64<<10)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return &diagnostic.Error{Kind: ErrMisused, Path: path, Found: "cannot read the token: " + diagnostic.Cause(err),
				Fix: "correct the file, or set HF_HUB_DISABLE_IMPLICIT_TOKEN=1 to go without", Cause: err}
		}
		s.Token, s.From = strings.TrimSpace(string(data)), path
	}
	switch {
	case s.Token == "":
		s.From = ""
	case strings.ContainsFunc(s.Token,
		func(r rune) bool { return r > unicode.MaxASCII || unicode.IsSpace(r) || unicode.IsControl(r) }):
		return misused(s.From, "found a token with blanks or characters that none has", "one line, as hf_...", "")
	case s.Endpoint.Scheme == "http" && !loopback(s.Endpoint.Hostname()):
		return misused("HF_ENDPOINT",
			"found a server without TLS, "+s.Endpoint.Host+", and a token ("+s.From+"), which anybody between could read",
			"https",
			"use https, or go without a token: unset HF_TOKEN, HF_HUB_DISABLE_IMPLICIT_TOKEN=1")
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
