package signing

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	"aead.dev/minisign"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
)

// PublicKey checks signatures.
type PublicKey struct{ key minisign.PublicKey }

// String is the key as minisign writes it, in base64.
func (k PublicKey) String() string { return k.key.String() }

// ID is the number by which signatures name a key, in hexadecimal. It is not proof of the key.
func (k PublicKey) ID() string { return id(k.key.ID()) }

// point is the key without its number.
func (k PublicKey) point() []byte {
	raw, _ := base64.StdEncoding.DecodeString(k.String()) // "Ed", 8 bytes of the number, and the key
	return raw[10:]
}

func id(number uint64) string { return fmt.Sprintf("%016X", number) }

// comment begins the first line of minisign's files.
const comment = "untrusted comment: "

// parsePublic reads a key in base64, in the one form that it has.
func parsePublic(text string) (k PublicKey, ok bool) {
	if strings.ContainsAny(text, "\r\n") || k.key.UnmarshalText([]byte(text)) != nil {
		return k, false
	}
	return k, k.String() == text
}

// ReadPublic reads a key: its text, or the file of one as minisign writes it.
func ReadPublic(text string) (PublicKey, error) {
	if k, ok := parsePublic(text); ok {
		return k, nil
	}
	const needed = "a public key of minisign, or the file of one: a comment and a line that begins with RW"
	data, err := storage.ReadRegular(text, maxKeyBytes)
	if err != nil {
		return PublicKey{}, badKey(diagnostic.Clip(text), "cannot read: "+diagnostic.Cause(err), needed, "", err)
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if len(lines) == 2 && strings.HasPrefix(lines[0], comment) {
		lines = lines[1:]
	}
	if len(lines) == 1 {
		if k, ok := parsePublic(lines[0]); ok {
			return k, nil
		}
	}
	found, fix := "found no such key", ""
	if strings.Contains(string(data), "secret key") {
		found, fix = "found a secret key", "never hand it on: name the public key that was made with it"
	}
	return PublicKey{}, badKey(text, found, needed, fix, nil)
}

// WritePublic writes the file of a key.
func WritePublic(path string, k PublicKey) error {
	text := comment + "minisign public key " + k.ID() + "\n" + k.String() + "\n"
	return stored(path, storage.Write(path, []byte(text), storage.Shared))
}

// stored words an error of a file that is written.
func stored(path string, err error) error {
	if err == nil {
		return nil
	}
	return badKey(path, "cannot write: "+diagnostic.Cause(err), "", "make the folder writable, or name another", err)
}

// there refuses what is there already: a key that is lost cannot be made again.
func there(path string) error {
	if _, err := os.Lstat(path); err != nil {
		return nil
	}
	return badKey(path, "found that it is there already",
		"a name that is free: what was signed with a key needs it for ever", "give another name, or move the file away", nil)
}
