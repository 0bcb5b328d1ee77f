package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"path/filepath"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/distribute/signing"
	"github.com/opgraft/graft/host/distribute/stall"
)

// Pulled is what came of a Reference.
type Pulled struct {
	Source    string `json:"source"`
	Archive   string `json:"archive"`             // path
	Signature string `json:"signature,omitempty"` // path, where there is one
	// of the artifact's manifest: sha256:HEX
	Digest string `json:"digest"`
	Bytes  int64  `json:"bytes"` // of the archive
}

// Pull writes a plugin's archive, and its signature if there is one, to a folder. On an error neither is there.
func (c *Client) Pull(ctx context.Context, r Reference, folder string) (*Pulled, error) {
	return c.pull(ctx, r, folder, pluginForm)
}

// PullIndex writes the file of an index to a folder, and gives its path.
func (c *Client) PullIndex(ctx context.Context, r Reference, folder string) (string, error) {
	p, err := c.pull(ctx, r, folder, indexForm)
	if err != nil {
		return "", err
	}
	return p.Archive, nil
}

// form is what an artifact holds: layers of these types, in that order, of which the first must be there.
type form struct {
	kind   string
	types  []string
	most   []int64 // bytes of each
	suffix string  // of the first layer's file
}

var (
	pluginForm = form{ArtifactType, []string{archiveType, signatureType}, []int64{mostArchive, mostSignature}, ".tar.gz"}
	indexForm  = form{IndexType, []string{indexType}, []int64{mostIndex}, ".yaml"}
)

// pull brings an artifact.
func (c *Client) pull(ctx context.Context, r Reference, folder string, is form) (*Pulled, error) {
	repository := c.repository(r)
	whole, cancel := stall.Whole(ctx, stall.Small)
	defer cancel()
	at, body, err := repository.FetchReference(whole, r.oci.Reference)
	if err != nil {
		return nil, c.worded(ctx, r.text, err)
	}
	defer body.Close()
	if at.Size > mostManifest {
		return nil, other(r.text, fmt.Sprintf("found a manifest of %d bytes", at.Size),
			fmt.Sprintf("at most %d", mostManifest), nil)
	}
	b, err := content.ReadAll(body, at)
	if err != nil {
		return nil, c.worded(ctx, r.text, err)
	}
	layers, err := is.layers(r, at, b)
	if err != nil {
		return nil, err
	}
	name := path.Base(r.oci.Repository) + "-" + strings.TrimPrefix(r.oci.Reference, "sha256:") + is.suffix
	p := &Pulled{Source: r.text, Archive: filepath.Join(folder, name), Digest: at.Digest.String(), Bytes: layers[0].Size}
	fetch := func(layer ocispec.Descriptor, to string, progress func(done, total int64)) (*storage.File, error) {
		body, err := repository.Blobs().Fetch(ctx, layer)
		if err != nil {
			return nil, c.worded(ctx, r.text, err)
		}
		defer body.Close()
		verified := content.NewVerifyReader(body, layer)
		f, err := c.write(to, verified, layer.Size, progress)
		if err == nil {
			if err = verified.Verify(); err != nil {
				f.Discard()
			}
		}
		if err != nil {
			return nil, c.worded(ctx, r.text, err)
		}
		return f, nil
	}
	archive, err := fetch(layers[0], p.Archive, c.o.Progress)
	if err != nil {
		return nil, err
	}
	defer archive.Discard()
	if len(layers) == 2 {
		p.Signature = p.Archive + signing.Suffix
		signature, err := fetch(layers[1], p.Signature, nil)
		if err != nil {
			return nil, err
		}
		defer signature.Discard()
		if err := signature.Commit(); err != nil { // first: nobody finds an archive without it
			return nil, err
		}
	}
	return p, archive.Commit()
}

// layers are those of an artifact's manifest.
func (f form) layers(r Reference, at ocispec.Descriptor, b []byte) ([]ocispec.Descriptor, error) {
	var m ocispec.Manifest
	if err := json.Unmarshal(b, &m); err != nil && at.MediaType == ocispec.MediaTypeImageManifest {
		return nil, other(r.text, "found a manifest that cannot be read: "+err.Error(), "one of "+at.MediaType, err)
	}
	if m.MediaType != ocispec.MediaTypeImageManifest {
		return nil, other(r.text, fmt.Sprintf("found a manifest of type %s",
			diagnostic.Quote(diagnostic.Clip(cmp.Or(m.MediaType, at.MediaType)))), "one of "+ocispec.MediaTypeImageManifest, nil)
	}
	if m.ArtifactType != f.kind {
		return nil, other(r.text,
			fmt.Sprintf("found an artifact of type %s", diagnostic.Quote(diagnostic.Clip(m.ArtifactType))), f.kind, nil)
	}
	if len(m.Layers) == 0 || len(m.Layers) > len(f.types) {
		return nil, other(r.text, fmt.Sprintf("found %d layers", len(m.Layers)), fmt.Sprintf("1 to %d", len(f.types)), nil)
	}
	for i, l := range m.Layers {
		switch {
		case l.MediaType != f.types[i]:
			return nil, other(r.text, fmt.Sprintf("found a layer of type %s", diagnostic.Quote(diagnostic.Clip(l.MediaType))),
				f.types[i], nil)
		case l.Size <= 0 || l.Size > f.most[i]:
			return nil, other(r.text, fmt.Sprintf("found a layer of %d bytes", l.Size), fmt.Sprintf("1 to %d", f.most[i]), nil)
		case l.Digest.Validate() != nil || l.Digest.Algorithm().String() != "sha256":
			return nil, other(r.text, "found a layer with the digest "+diagnostic.Quote(diagnostic.Clip(l.Digest.String())),
				"one of sha256", nil)
		}
	}
	return m.Layers, nil
}

// write begins a file with all that arrives. It has its name when it is committed.
func (c *Client) write(to string, from io.Reader, total int64, progress func(done, total int64)) (*storage.File,
	error) {
	f, err := storage.Create(to, storage.Shared)
	if err != nil {
		return nil, err
	}
	if progress != nil {
		from = io.TeeReader(from, &counter{total: total, tell: progress})
	}
	if _, err := io.Copy(f, from); err != nil {
		f.Discard()
		return nil, err
	}
	return f, nil
}

// counter tells of what passes.
type counter struct {
	done, total int64
	tell        func(done, total int64)
}

func (c *counter) Write(p []byte) (int, error) {
	c.done += int64(len(p))
	c.tell(c.done, c.total)
	return len(p), nil
}

// logIn is how a registry comes to know who is there.
const logIn = "run: docker login, or write the credentials to config.json in the folder that DOCKER_CONFIG names"

// worded is an error of a server as one that says what can be done.
func (c *Client) worded(ctx context.Context, path string, err error) error {
	var answer *errcode.ErrorResponse
	var known *diagnostic.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &known):
		return err
	case errors.Is(err, content.ErrMismatchedDigest), errors.Is(err, content.ErrTrailingData),
		errors.Is(err, content.ErrInvalidDescriptorSize):
		return other(path, "found other bytes than their digest says", "those", err)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return failed(path, "the server ended before all bytes were there", "try again", err)
	case errors.Is(err, stall.ErrStalled):
		return failed(path, "found nothing arriving for "+c.o.Stall.String(), "try again", err)
	case errors.Is(err, errdef.ErrNotFound):
		return failed(path, "found nothing there", "", err)
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		return failed(path, "the registry wants a password", logIn, err)
	case errors.As(err, &answer):
		switch answer.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			return failed(path, "the registry does not let you in ("+http.StatusText(answer.StatusCode)+")", logIn, err)
		}
		return failed(path, fmt.Sprintf("the registry answers %d %s", answer.StatusCode, http.StatusText(answer.StatusCode)),
			"", err)
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return failed(path, "the registry speaks without TLS",
			"use --plain-http where nobody between you and it can change what it says", err)
	}
	return failed(path, err.Error(), "", err)
}
