package signing

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// Trusted is the file of the keys that a user trusts. It lies in the user's data folder, beside the record of what
// was verified, and is guarded as that is: who can write to it can have any plugin installed.
type Trusted struct{ path string }

// FileName is the name of the file in the data folder.
const FileName = "trusted-keys.json"

const (
	schemaVersion   = 1
	maxTrustedBytes = 1 << 20
)

// Key is one that a user trusts.
type Key struct {
	Key     string    `json:"key"` // in base64, as minisign writes it
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"`    // for people
	Plugins []string  `json:"plugins,omitempty"` // that it may sign; none for all
	Added   time.Time `json:"added"`
}

// Keys are those that a user trusts. No two have one ID.
type Keys []Key

// User is the file in the user's data folder.
func User() (*Trusted, error) {
	data, err := storage.DataFolder()
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrStore, Found: err.Error(), Cause: err}
	}
	return At(data), nil
}

// At is the file in a folder of the caller's.
func At(folder string) *Trusted { return &Trusted{filepath.Join(folder, FileName)} }

type trustedFile struct {
	SchemaVersion int  `json:"schema_version"`
	Keys          Keys `json:"keys"`
}

// Read gives the keys; none where there is no file. One that others can change, or that says what it may not say, is
// refused.
func (t *Trusted) Read() (Keys, error) {
	data, err := storage.ReadOwn(t.path, maxTrustedBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return Keys{}, nil
	}
	var known trustedFile
	if err == nil {
		if err = content.Guarded(t.path); err != nil {
			return nil, err
		}
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err = d.Decode(&known); err == nil && d.More() {
			err = errors.New("found more after its end")
		}
	}
	if err == nil && known.SchemaVersion != schemaVersion {
		err = fmt.Errorf("found schema_version %d, needed %d", known.SchemaVersion, schemaVersion)
	}
	for i, k := range known.Keys {
		if err == nil {
			err = k.valid(known.Keys[:i])
		}
	}
	if err != nil {
		return nil, badKey(t.path, "cannot read the trusted keys: "+diagnostic.Cause(err), "",
			"remove the file, and add the keys again: graft plugin trust add", err)
	}
	return known.Keys, nil
}

// valid refuses a key that Add would not have written after those before it.
func (k Key) valid(before Keys) error {
	public, ok := parsePublic(k.Key)
	switch {
	case !ok:
		return fmt.Errorf("found %s, which is no public key", diagnostic.Quote(diagnostic.Clip(k.Key)))
	case public.ID() != k.ID:
		return fmt.Errorf("found the key %s under the ID %s", public.ID(), diagnostic.Clip(k.ID))
	case before.withID(k.ID) != nil:
		return fmt.Errorf("found the key %s twice", k.ID)
	case strings.ContainsFunc(k.Name, unicode.IsControl) || len(k.Name) > 200:
		return fmt.Errorf("found a name of the key %s that is too long or has control characters", k.ID)
	case slices.ContainsFunc(k.Plugins, func(name string) bool { return !manifest.IsName(name) }):
		return fmt.Errorf("found the key %s for %s, which is no plugin's name", k.ID,
			diagnostic.Quote(diagnostic.Clip(strings.Join(k.Plugins, ", "))))
	}
	return nil
}

func (keys Keys) withID(id string) *Key {
	if i := slices.IndexFunc(keys, func(k Key) bool { return k.ID == id }); i >= 0 {
		return &keys[i]
	}
	return nil
}

// Has reports whether a key of an ID is trusted.
func (keys Keys) Has(id string) bool { return keys.withID(id) != nil }

// Named is the key of a public key's text, nil where it is not trusted.
func (keys Keys) Named(key string) *Key {
	if i := slices.IndexFunc(keys, func(k Key) bool { return k.Key == key }); i >= 0 {
		return &keys[i]
	}
	return nil
}

// Add trusts a key from now on, for the plugins of these names, all without any. The same key again takes the new
// plugins, and the name where one is given.
func (t *Trusted) Add(ctx context.Context, k PublicKey, name string, plugins []string) (Key, error) {
	added := Key{Key: k.String(), ID: k.ID(), Name: name, Plugins: plugins, Added: time.Now().UTC().Truncate(time.Second)}
	if err := added.valid(nil); err != nil {
		return Key{}, badKey("graft plugin trust add", err.Error(), "", "", err)
	}
	err := t.update(ctx, func(keys Keys) (Keys, error) {
		switch there := keys.withID(added.ID); {
		case there == nil:
		case there.Key == added.Key:
			added.Name = cmp.Or(added.Name, there.Name)
		default:
			return nil, badKey(t.path, fmt.Sprintf("found another key with the ID %s, %s", there.ID, there.Key),
				"one key of an ID: two happen only where someone means to confuse",
				"if it is the right one, run first: graft plugin trust remove "+there.ID, nil)
		}
		keys = slices.DeleteFunc(keys, func(k Key) bool { return k.ID == added.ID })
		return append(keys, added), nil
	})
	return added, err
}

// Remove trusts a key no longer: one of an ID, of a name, or in base64. What it signed stays installed.
func (t *Trusted) Remove(ctx context.Context, what string) (Key, error) {
	var removed Key
	err := t.update(ctx, func(keys Keys) (Keys, error) {
		is := func(k Key) bool {
			return strings.EqualFold(k.ID, what) || k.Key == what || k.Name != "" && k.Name == what
		}
		i := slices.IndexFunc(keys, is)
		if i < 0 {
			return nil, badKey(t.path, "found no key "+diagnostic.Quote(diagnostic.Clip(what)), "the ID or the name of one",
				"run: graft plugin trust list", nil)
		}
		removed = keys[i]
		if slices.ContainsFunc(keys[i+1:], is) {
			return nil, badKey(t.path, "found two keys of the name "+diagnostic.Quote(diagnostic.Clip(what)), "the ID of one",
				"run: graft plugin trust list", nil)
		}
		return slices.Delete(keys, i, i+1), nil
	})
	return removed, err
}

// update changes the file under a lock and puts it in place in one step.
func (t *Trusted) update(ctx context.Context, change func(Keys) (Keys, error)) error {
	folder := filepath.Dir(t.path)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return refusal.Store(folder, "cannot make the folder", err)
	}
	lock, err := storage.Lock(ctx, t.path+".lock", nil)
	if err != nil {
		return refusal.Locking(ctx, t.path, err)
	}
	defer lock.Close()
	keys, err := t.Read()
	if err != nil {
		return err
	}
	if keys, err = change(keys); err != nil {
		return err
	}
	data, err := json.MarshalIndent(trustedFile{schemaVersion, keys}, "", "  ")
	if err != nil {
		return err
	}
	if err := storage.Write(t.path, append(data, '\n'), storage.Shared); err != nil {
		return refusal.Store(t.path, "cannot write", err)
	}
	return nil
}

// mayBe refuses a plugin that the key is not trusted for.
func (s *Signer) mayBe(named, plugin string) error {
	if len(s.plugins) == 0 || slices.Contains(s.plugins, plugin) {
		return nil
	}
	return &diagnostic.Error{Kind: ErrUntrusted, Path: named,
		Found: fmt.Sprintf("found %s, signed by the key %s, which is trusted for %s", plugin, s.ID,
			strings.Join(s.plugins, ", ")),
		Needed: "a plugin that it is trusted for",
		Fix: fmt.Sprintf("if it may sign this one too, run: graft plugin trust add %s --for %s", s.Key,
			strings.Join(append(slices.Clone(s.plugins), plugin), ","))}
}
