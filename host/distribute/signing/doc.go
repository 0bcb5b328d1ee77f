// Package signing signs archives of plugins and checks their signatures, in minisign's format
// (https://jedisct1.github.io/minisign/): ed25519 over the archive's BLAKE2b-512, in a file beside it whose name has
// [Suffix] more. It holds the keys that a user trusts.
//
// The trusted comment of a signature, which is signed as well, names the plugin and its version: "plugin:NAME", a
// tab, "version:VERSION". There is no time in it, so that the same archive and key give the same signature. The
// untrusted comment ends with the public key: who meets it for the first time is told which key it is, and decides.
package signing

import (
	"errors"
	"fmt"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// Suffix is what an archive's name has more when it is that of its signature.
const Suffix = ".minisig"

// MaxKeyBytes is how large a key's file may be.
const MaxKeyBytes = 4 << 10

// Bounds of what is read.
const (
	maxKeyBytes       = MaxKeyBytes
	maxSignatureBytes = 64 << 10
)

// Kinds of errors. The last two are also of kind refusal.ErrVerification.
var (
	// ErrKey: a key that cannot be read or used.
	ErrKey = errors.New("bad key")
	// ErrSignature: a signature that is damaged, or not of this archive.
	ErrSignature = fmt.Errorf("%w: bad signature", refusal.ErrVerification)
	// ErrUntrusted: no signature, or one of a key that is not trusted.
	ErrUntrusted = fmt.Errorf("%w: not signed by a trusted key", refusal.ErrVerification)
)

func badKey(path, found, needed, fix string, err error) error {
	return &diagnostic.Error{Kind: ErrKey, Path: path, Found: found, Needed: needed, Fix: fix, Cause: err}
}
