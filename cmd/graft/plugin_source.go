package main

import (
	"context"

	"github.com/opgraft/graft/host/diagnostic"
	"github.com/opgraft/graft/host/plugin/registry"
	"github.com/opgraft/graft/host/plugin/store"
	"github.com/opgraft/graft/host/plugin/verification"
	"github.com/opgraft/graft/host/storage"
)

// install installs a folder or an archive, or what a registry or a server has, which is brought to a temporary folder first.
func (c *cli) install(ctx context.Context, s *store.Store, source string, o registry.Options, checks verification.Options) (*store.Installation, error) {
	if !registry.Is(source) {
		return s.Install(ctx, source, checks)
	}
	r, err := registry.Parse(source)
	if err != nil {
		return nil, err
	}
	folder, err := storage.Temporary("")
	if err != nil {
		return nil, &diagnostic.Error{Kind: registry.ErrContent, Path: source, Found: "cannot write: " + diagnostic.Cause(err), Fix: "set TMPDIR to a writable folder", Cause: err}
	}
	defer folder.Remove()
	pulled, err := c.pull(ctx, source, folder.Path, o)
	if err != nil {
		return nil, err
	}
	checks.From, checks.Accept = source, r.Accept
	return s.Install(ctx, pulled.Archive, checks)
}
