// Package registry brings plugins to and from OCI registries, and searches indexes of them. Nothing
// that arrives is trusted: its size is bounded, its digest is compared as it is read, and a file has its name only
// when it is whole. What is in an archive is looked at by who installs it.
//
// A plugin is an OCI 1.1 artifact (https://github.com/opencontainers/image-spec, manifest.md): its artifactType is
// [ArtifactType], its first layer the archive, and a second one, if it is there, the archive's signature. An index is
// one of [IndexType], whose only layer is its file.
package registry

import (
	"errors"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// Types of artifacts.
const (
	ArtifactType = "application/vnd.opgraft.plugin.v1"
	IndexType    = "application/vnd.opgraft.plugin.index.v1"
)

// Media types of layers.
const (
	archiveType   = "application/vnd.opgraft.plugin.archive.v1.tar+gzip"
	signatureType = "application/vnd.opgraft.plugin.signature.v1+minisign"
	indexType     = "application/vnd.opgraft.plugin.index.v1+yaml"
)

// Bounds of what is read.
const (
	mostManifest  = 1 << 20
	mostSignature = 64 << 10
	mostArchive   = 4 << 30
	mostHops      = 8 // redirects of a request
)

// Kinds of errors.
var (
	// ErrReference: not a place that a plugin can be brought from.
	ErrReference = errors.New("bad reference")
	// ErrRemote: a server that cannot be reached, refuses, or does not answer as it should.
	ErrRemote = errors.New("registry failed")
	// ErrContent: what a server gave is not what was asked for.
	ErrContent = errors.New("registry gave something else")
	// ErrExists: a version that is there is never replaced.
	ErrExists = errors.New("the version exists")
)

func failed(path, found, fix string, err error) error {
	return &diagnostic.Error{Kind: ErrRemote, Path: path, Found: found, Fix: fix, Cause: err}
}

func other(path, found, needed string, err error) error {
	return &diagnostic.Error{Kind: ErrContent, Path: path, Found: found, Needed: needed,
		Fix: "do not install it; ask who published it", Cause: err}
}
