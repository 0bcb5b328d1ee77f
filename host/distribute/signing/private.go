package signing

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"

	"aead.dev/minisign"
	"golang.org/x/crypto/blake2b"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
)

// PrivateKey signs.
type PrivateKey struct{ key minisign.PrivateKey }

// Public is the key that checks what k signs.
func (k PrivateKey) Public() PublicKey { return PublicKey{k.key.Public().(minisign.PublicKey)} }

// Generate makes a pair of keys and writes each to a file that is not there yet. password gives what protects the
// private one; nil for none.
func Generate(private, public string, password func() (string, error)) (PublicKey, error) {
	for _, path := range []string{private, public} {
		if err := there(path); err != nil {
			return PublicKey{}, err
		}
	}
	_, key, err := minisign.GenerateKey(nil)
	if err != nil {
		return PublicKey{}, err
	}
	text, err := key.MarshalText()
	if err == nil && password != nil {
		var word string
		if word, err = password(); err == nil {
			text, err = minisign.EncryptKey(word, key)
		}
	} else if err == nil {
		comment, raw := decoded(text)
		text = base64.StdEncoding.AppendEncode(comment, append(raw[:checksumAt], checksum(raw)...))
	}
	if err != nil {
		return PublicKey{}, err
	}
	k := PrivateKey{key}.Public()
	if err := WritePublic(public, k); err != nil { // first: without the other it is nothing that could be missed
		return PublicKey{}, err
	}
	if err := storage.Write(private, append(text, '\n'), storage.Private); err != nil {
		return PublicKey{}, errors.Join(stored(private, err), os.Remove(public))
	}
	return k, nil
}

// IsPrivate reports whether a file's content is a private key, protected or not.
func IsPrivate(data []byte) bool {
	var k minisign.PrivateKey
	return minisign.IsEncrypted(data) || k.UnmarshalText(data) == nil
}

// ReadPrivate reads the file of a key, which is this user's own. password is asked where one protects it.
func ReadPrivate(path string, password func() (string, error)) (PrivateKey, error) {
	const needed = "a private key, as graft plugin keygen and minisign write it"
	data, err := storage.ReadOwn(path, maxKeyBytes)
	if err != nil {
		return PrivateKey{}, badKey(path, "cannot read: "+diagnostic.Cause(err), needed, "", err)
	}
	var k PrivateKey
	if minisign.IsEncrypted(data) {
		word, err := password()
		if err != nil {
			return PrivateKey{}, err
		}
		if k.key, err = minisign.DecryptKey(word, data); err != nil {
			return PrivateKey{}, badKey(path, "found another password, or a damaged key", "the password that it was made with",
				"", err)
		}
	} else {
		if err := k.key.UnmarshalText(data); err != nil {
			return PrivateKey{}, badKey(path, "found no private key", needed, "", err)
		}
		if !sound(data) {
			return PrivateKey{}, badKey(path, "found a damaged key, of another checksum", needed, "take it from a backup", nil)
		}
		if public, other := otherNumber(path, k.Public()); other {
			return PrivateKey{}, badKey(path, "found a damaged key, of another number than "+public, needed,
				"take it from a backup", nil)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
			return PrivateKey{}, badKey(path, "found a key without a password that others can read",
				"one that only its owner can read", "run: chmod 600 "+diagnostic.Quote(path), err)
		}
	}
	// Nothing but a password protects the file from damage: a key whose halves do not fit would give signatures that are
	// none.
	const probe = "graft"
	if !minisign.Verify(k.Public().key, []byte(probe), minisign.SignWithComments(k.key, []byte(probe), "", "")) {
		return PrivateKey{}, badKey(path, "found a damaged key, whose signatures cannot be checked with its public half",
			needed, "take it from a backup", nil)
	}
	return k, nil
}

// Places in a private key that no password protects.
const numberAt, checksumAt = 54, 126

// decoded is the file of such a key: its first line, and the bytes in base64 after it.
func decoded(text []byte) (comment, raw []byte) {
	end := bytes.IndexByte(bytes.TrimSpace(text), '\n') + 1
	raw, _ = base64.StdEncoding.DecodeString(string(bytes.TrimSpace(text[end:]))) // what is none was refused before
	return text[:end:end], raw
}

// checksum is that of a key's number and both halves, as minisign has it in keys that a password protects.
func checksum(raw []byte) []byte {
	sum := blake2b.Sum256(append([]byte("Ed"), raw[numberAt:checksumAt]...))
	return sum[:]
}

// sound compares the checksum of a key. minisign writes zeros, and graft did so before.
func sound(text []byte) bool {
	_, raw := decoded(text)
	return len(raw) > checksumAt && (bytes.Equal(raw[checksumAt:], checksum(raw)) ||
		bytes.Equal(raw[checksumAt:], make([]byte, blake2b.Size256)))
}

// otherNumber is whether the public half beside a key has another number. Where minisign wrote no checksum, nothing
// else tells that the number is damaged, and a signature would name a key that nobody has.
func otherNumber(path string, k PublicKey) (public string, other bool) {
	for _, public := range []string{strings.TrimSuffix(path, ".key") + ".pub", path + ".pub"} {
		p, err := ReadPublic(public)
		if err == nil && p.ID() != k.ID() && bytes.Equal(p.point(), k.point()) {
			return public, true
		}
	}
	return "", false
}

func trustedComment(name, version string) string {
	return fmt.Sprintf("plugin:%s\tversion:%s", name, version)
}
