package store

import (
	"cmp"
	"context"
	"io"
	"path/filepath"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/distribute/archive"
	"github.com/opgraft/graft/host/distribute/signing"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/verification"
)

// unpack checks the signature of an archive and unpacks it; the signer is nil for an archive that opts accept without
// one. What is unpacked are the bytes that were checked: a copy in the staging folder, which nobody else can change.
func (s *Store) unpack(ctx context.Context, source string, st *staging, opts verification.Options) (*signing.Signer,
	error) {
	named := cmp.Or(opts.From, source)
	accept := signing.Accept(named)
	signature, err := signing.Read(source)
	if err != nil {
		return nil, relabel(err, source, named)
	}
	if signature == nil && !opts.AllowUnsigned {
		return nil, signing.Unsigned(named, accept)
	}
	keys, err := s.keys.Read()
	if err != nil {
		return nil, err
	}
	from, err := storage.OpenRegular(source)
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrArchive, Path: named, Found: "cannot read: " + diagnostic.Cause(err),
			Cause: err}
	}
	defer from.Close()
	digest := signing.NewDigest(ctx, from)
	held := filepath.Join(st.folder, filepath.Base(source))
	if err := storage.WriteFrom(held, storage.Private,
		func(w io.Writer) error { _, err := io.Copy(w, digest); return err }); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, refusal.Store(s.root, "cannot copy "+named+" there", err)
	}
	var signer *signing.Signer
	if signature != nil && (!opts.AllowUnsigned || keys.Has(signature.KeyID())) {
		if signer, err = signature.Verify(digest, keys, named, accept); err != nil {
			return nil, relabel(err, source, named)
		}
	}
	if err := archive.Unpack(ctx, held, st.content); err != nil {
		return nil, relabel(relabel(err, held, named), st.content, named)
	}
	return signer, nil
}

// asMeant refuses a plugin that is not what its signature says, or what was asked for. folder is where it lies now.
func asMeant(folder, named string, signer *signing.Signer, opts verification.Options) error {
	if signer == nil && opts.Accept == nil {
		return nil
	}
	m, err := manifest.Read(folder)
	if err != nil {
		return err
	}
	if signer != nil {
		if err := signer.Fits(named, m.Name, m.Version); err != nil {
			return err
		}
	}
	if opts.Accept != nil {
		return opts.Accept(m)
	}
	return nil
}
