package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opgraft/graft/host/diagnostic"
)

// UnverifiedVariable, set to 1, makes Open load libraries whose hash is not recorded.
const UnverifiedVariable = "GRAFT_PLUGIN_UNVERIFIED"

func acceptUnverified() bool { return os.Getenv(UnverifiedVariable) == "1" }

// Trust is the record of the libraries that have been run apart and passed, by hash. It lies in the
// user's data folder, never in a plugin's own: a folder cannot vouch for itself.
type Trust struct {
	path string
}

// trustFile is the name of the record in the data folder.
const trustFile = "verified.json"

// maxTrustBytes bounds the record; an entry takes some 200 bytes.
const maxTrustBytes = 16 << 20

// UserTrust is the record in the user's data folder.
func UserTrust() (*Trust, error) {
	data, err := DataFolder()
	if err != nil {
		return nil, &diagnostic.Error{Kind: ErrStore, Found: err.Error(), Cause: err}
	}
	return TrustAt(data), nil
}

// TrustAt is the record in a folder of the caller's.
func TrustAt(folder string) *Trust { return &Trust{path: filepath.Join(folder, trustFile)} }

// Path is the record's file.
func (t *Trust) Path() string { return t.path }

// Verified is what is recorded of a library.
type Verified struct {
	Name    string     `json:"name"` // of the plugin
	Version string     `json:"version"`
	Device  string     `json:"device"`
	ABI     ABIVersion `json:"abi"`
	Cases   int        `json:"cases"` // how many passed
	Time    time.Time  `json:"time"`
	Folders []string   `json:"folders"` // of the plugins that hold it, where it was verified
}

// trustContent is the file.
type trustContent struct {
	SchemaVersion int                 `json:"schema_version"`
	Libraries     map[string]Verified `json:"libraries"` // by SHA-256 in hexadecimal
}

// read gives the content; a missing file is an empty record.
func (t *Trust) read() (*trustContent, error) {
	content := &trustContent{SchemaVersion: 1, Libraries: map[string]Verified{}}
	data, err := readBounded(t.path, maxTrustBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return content, nil
	}
	if err == nil {
		err = json.Unmarshal(data, content)
	}
	if err == nil && content.SchemaVersion != 1 {
		err = fmt.Errorf("found schema_version %d, needed 1", content.SchemaVersion)
	}
	if err != nil {
		return nil, &diagnostic.Error{Kind: ErrStore, Path: t.path, Found: "cannot read the record of verified libraries: " + err.Error(),
			Fix: "remove the file and install the plugins again", Cause: err}
	}
	if content.Libraries == nil {
		content.Libraries = map[string]Verified{}
	}
	return content, nil
}

// Lookup finds what is recorded of a hash.
func (t *Trust) Lookup(sha string) (Verified, bool, error) {
	content, err := t.read()
	if err != nil {
		return Verified{}, false, err
	}
	v, ok := content.Libraries[sha]
	return v, ok, nil
}

// forget takes libraries of a plugin that is no longer in the folder out of the record. One that was
// verified in another folder too stays.
func forget(libraries map[string]Verified, files map[string]string, folder string) {
	for _, sha := range files {
		v, ok := libraries[sha]
		if !ok {
			continue
		}
		v.Folders = slices.DeleteFunc(slices.Clone(v.Folders), func(f string) bool { return f == folder })
		if libraries[sha] = v; len(v.Folders) == 0 {
			delete(libraries, sha)
		}
	}
}

// requireTrust refuses a library whose hash is not recorded.
func (p *Plugin) requireTrust(t *Trust) error {
	if t == nil {
		var err error
		if t, err = UserTrust(); err != nil {
			return err
		}
	}
	_, ok, err := t.Lookup(p.SHA256)
	if err != nil || ok {
		return err
	}
	return &diagnostic.Error{Kind: ErrVerification, Path: p.Path,
		Found:  fmt.Sprintf("found a library that has not been verified here (sha256 %s...)", p.SHA256[:12]),
		Needed: "one that graft has run apart from this program first",
		Fix:    fmt.Sprintf("run: graft plugin install %s (or, to use it where it is: graft plugin verify %s)", shellQuote(p.Folder), shellQuote(p.Folder)),
	}
}

// shellQuote makes a path fit for pasting into a shell.
func shellQuote(s string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '/' || c == '.' || c == '-' || c == '_' || c == '+' || c == '@' || c == ':' || c == ','
	}
	for _, c := range s {
		if !plain(c) {
			quoted := "'"
			for _, c := range s {
				if c == '\'' {
					quoted += `'\''`
				} else {
					quoted += string(c)
				}
			}
			return quoted + "'"
		}
	}
	return s
}

// hashFile is the SHA-256 of a file in hexadecimal.
func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", &diagnostic.Error{Kind: ErrStore, Path: path, Found: err.Error(), Cause: err}
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", &diagnostic.Error{Kind: ErrStore, Path: path, Found: err.Error(), Fix: "check the disk", Cause: err}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// update changes the record under its lock and puts it in place in one step.
func (t *Trust) update(ctx context.Context, change func(libraries map[string]Verified)) error {
	if err := os.MkdirAll(filepath.Dir(t.path), 0o755); err != nil {
		return storeError(filepath.Dir(t.path), "cannot make the folder", err)
	}
	lock, err := lockFile(ctx, t.path+".lock")
	if err != nil {
		return err
	}
	defer lock.Close()
	content, err := t.read()
	if err != nil {
		return err
	}
	change(content.Libraries)
	data, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(t.path), "."+trustFile+"-")
	if err != nil {
		return storeError(filepath.Dir(t.path), "cannot write", err)
	}
	defer os.Remove(temp.Name()) // fails once it is renamed
	_, err = temp.Write(append(data, '\n'))
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Chmod(temp.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(temp.Name(), t.path)
	}
	if err != nil {
		return storeError(t.path, "cannot write", err)
	}
	return nil
}
