package signing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"aead.dev/minisign"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
)

// Signature is what stands beside an archive. None of it is true before Verify says so.
type Signature struct {
	path string
	text []byte
	s    minisign.Signature
}

// Sign writes the signature of an archive of a plugin beside it, and gives its path.
func Sign(ctx context.Context, archive string, k PrivateKey, name, version string) (string, error) {
	f, err := storage.OpenRegular(archive)
	if err != nil {
		return "", &diagnostic.Error{Kind: ErrSignature, Path: archive, Found: "cannot read: " + diagnostic.Cause(err),
			Cause: err}
	}
	defer f.Close()
	r := minisign.NewReader(storage.Until(ctx, f))
	if _, err := io.Copy(io.Discard, r); err != nil {
		return "", err
	}
	public := k.Public()
	text := r.SignWithComments(k.key, trustedComment(name, version),
		fmt.Sprintf("graft plugin %s %s, public key %s", name, version, public))
	path := archive + Suffix
	return path, stored(path, storage.Write(path, text, storage.Shared))
}

// Read reads the signature beside an archive; nil where there is none.
func Read(archive string) (*Signature, error) {
	s := &Signature{path: archive + Suffix}
	var err error
	if s.text, err = storage.ReadRegular(s.path, maxSignatureBytes); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, s.damaged("cannot read: "+diagnostic.Cause(err), err)
	}
	if err := s.s.UnmarshalText(s.text); err != nil {
		return nil, s.damaged("found "+strings.TrimPrefix(err.Error(), "minisign: "), err)
	}
	// minisign -l signs the archive itself, not its hash, so that verifying holds all of it in memory.
	if s.s.Algorithm == minisign.EdDSA {
		return nil, &diagnostic.Error{Kind: ErrSignature, Path: s.path,
			Found:  "found a signature in minisign's legacy form, of the archive and not of its hash",
			Needed: "one of the hash, as graft plugin sign and minisign write it",
			Fix:    "ask the author to sign it without -l, or with graft plugin sign"}
	}
	// One signature has one form: base64 could be written in several ways, with lines in it and bits that nobody reads.
	if again, err := s.s.MarshalText(); err != nil || string(again) != string(s.text) ||
		s.s.Algorithm != minisign.HashEdDSA {
		return nil, s.damaged("found a form of it that minisign does not write", err)
	}
	return s, nil
}

func (s *Signature) damaged(found string, err error) error {
	return &diagnostic.Error{Kind: ErrSignature, Path: s.path, Found: found,
		Needed: "the signature of the archive, as graft plugin sign and minisign write it",
		Fix:    "do not install it; bring both again", Cause: err}
}

// KeyID is the key that the signature says to be of.
func (s *Signature) KeyID() string { return id(s.s.KeyID) }

// offered is the key that the untrusted comment ends with, if it is the one that made the signature.
func (s *Signature) offered(digest *Digest) (PublicKey, bool) {
	words := strings.Fields(s.s.UntrustedComment)
	if len(words) == 0 {
		return PublicKey{}, false
	}
	k, ok := parsePublic(words[len(words)-1])
	return k, ok && digest.r.Verify(k.key, s.text)
}

// Digest reads an archive as signatures see it.
type Digest struct{ r *minisign.Reader }

// NewDigest takes what is read of r.
func NewDigest(ctx context.Context, r io.Reader) *Digest {
	return &Digest{minisign.NewReader(storage.Until(ctx, r))}
}

func (d *Digest) Read(p []byte) (int, error) { return d.r.Read(p) }

// Signer is who signed an archive, and as what.
type Signer struct {
	Key             string // public
	ID              string
	Name            string // that the user gave the key
	Plugin, Version string
	plugins         []string // that the key is trusted for; none for all
}

// Verify compares an archive, which digest has read to its end, with its signature. named is the archive for
// messages, and accept the command that would take it whoever signed it.
func (s *Signature) Verify(digest *Digest, trusted Keys, named, accept string) (*Signer, error) {
	k := trusted.withID(s.KeyID())
	if k == nil {
		return nil, s.unknown(digest, named, accept)
	}
	public, _ := parsePublic(k.Key)
	if !digest.r.Verify(public.key, s.text) {
		return nil, &diagnostic.Error{Kind: ErrSignature, Path: named,
			Found: fmt.Sprintf("found that it is not what the key %s signed: the archive or its signature was changed",
				s.KeyID()),
			Needed: "both as their author made them", Fix: "do not install it; bring both again"}
	}
	signer := &Signer{Key: k.Key, ID: k.ID, Name: k.Name, plugins: k.Plugins}
	for field := range strings.SplitSeq(s.s.TrustedComment, "\t") {
		name, value, _ := strings.Cut(field, ":")
		for part, to := range map[string]*string{"plugin": &signer.Plugin, "version": &signer.Version} {
			if name != part {
				continue
			}
			if *to != "" {
				return nil, s.damaged("found a trusted comment that says "+part+" twice", nil)
			}
			*to = value
		}
	}
	if signer.Plugin == "" || signer.Version == "" {
		return nil, &diagnostic.Error{Kind: ErrSignature, Path: s.path,
			Found:  "found the trusted comment " + diagnostic.Quote(diagnostic.Clip(s.s.TrustedComment)),
			Needed: "one that says which plugin and version it is, plugin:NAME and version:VERSION with a tab between",
			Fix:    "ask its author to sign it with: graft plugin sign"}
	}
	return signer, nil
}

// Check compares an archive with the signature beside it, without installing it; nil where there is none.
func Check(ctx context.Context, archive string, trusted Keys) (*Signer, error) {
	s, err := Read(archive)
	if s == nil || err != nil {
		return nil, err
	}
	f, err := storage.OpenRegular(archive)
	if err != nil {
		return nil, &diagnostic.Error{Kind: ErrSignature, Path: archive, Found: "cannot read: " + diagnostic.Cause(err),
			Cause: err}
	}
	defer f.Close()
	digest := NewDigest(ctx, f)
	if _, err := io.Copy(io.Discard, digest); err != nil {
		return nil, err
	}
	return s.Verify(digest, trusted, archive, Accept(archive))
}

// Accept is the command that installs an archive whoever signed it.
func Accept(archive string) string {
	return "graft plugin install --allow-unsigned " + diagnostic.Quote(archive)
}

// unknown refuses the signature of a key that is not trusted, and says which that is.
func (s *Signature) unknown(digest *Digest, named, accept string) error {
	e := &diagnostic.Error{Kind: ErrUntrusted, Path: named,
		Found:  fmt.Sprintf("found a signature of the key %s, which is not trusted", s.KeyID()),
		Needed: "one of a key in graft plugin trust list",
		Fix: "get its author's public key from where you know it is theirs, and run: graft plugin trust add FILE.pub; or " +
			"install it unchecked: " + accept}
	if k, ok := s.offered(digest); ok {
		e.Fix = fmt.Sprintf("if its author says that this is their key, run: graft plugin trust add %s; or install it "+
			"unchecked: %s", k, accept)
	}
	return e
}

// Unsigned refuses an archive without a signature.
func Unsigned(named, accept string) error {
	return &diagnostic.Error{Kind: ErrUntrusted, Path: named, Found: "found no signature beside it",
		Needed: "that of a trusted key, in a file with " + Suffix + " after its name",
		Fix:    "ask its author for it, or install it unchecked: " + accept}
}

// Fits compares what was signed with what an archive holds.
func (s *Signer) Fits(named, plugin, version string) error {
	if s.Plugin != plugin || s.Version != version {
		return &diagnostic.Error{Kind: ErrSignature, Path: named,
			Found: fmt.Sprintf("found %s %s, signed as %s %s", plugin, version, diagnostic.Clip(s.Plugin),
				diagnostic.Clip(s.Version)),
			Needed: "what the signature says", Fix: "do not install it; ask its author"}
	}
	return s.mayBe(named, plugin)
}
