package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/distribute/signing"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// Pushed is what Push did.
type Pushed struct {
	Reference string `json:"reference"`
	Digest    string `json:"digest"` // of the artifact's manifest
	Bytes     int64  `json:"bytes"`  // of the archive
	Signed    bool   `json:"signed"`
	Known     bool   `json:"known"` // the same was there already
}

// created is when all artifacts were made, so that the same archive is the same artifact.
const created = "1970-01-01T00:00:00Z"

// Push publishes an archive of a plugin, whose manifest is m, and the signature that lies beside it, if one does. The
// tag is the version. A tag that names something else already stays as it is.
func (c *Client) Push(ctx context.Context, archive string, m *manifest.Manifest, r Reference) (*Pushed, error) {
	if err := r.oci.ValidateReferenceAsTag(); err != nil || r.oci.Reference != tag(m.Version) {
		r.oci.Reference = tag(m.Version)
		return nil, &diagnostic.Error{Kind: ErrReference, Path: r.text,
			Found: fmt.Sprintf("found an archive of %s %s", m.Name, m.Version), Needed: "its version as the tag",
			Fix: "push it to oci://" + r.oci.String()}
	}
	if base := path.Base(r.oci.Repository); base != m.Name {
		return nil, &diagnostic.Error{Kind: ErrReference, Path: r.text,
			Found:  fmt.Sprintf("found an archive of %s %s", m.Name, m.Version),
			Needed: "its name at the end of the repository's",
			Fix: "push it to oci://" + strings.TrimSuffix(r.oci.String(), base+":"+r.oci.Reference) + m.Name + ":" +
				r.oci.Reference}
	}
	name := m.Name + "-" + m.Version + ".tar.gz"
	first, err := layerOf(archive, name, archiveType, mostArchive)
	if err != nil {
		return nil, err
	}
	layers := []layer{*first}
	second, err := layerOf(archive+signing.Suffix, name+signing.Suffix, signatureType, mostSignature)
	switch {
	case err == nil:
		layers = append(layers, *second)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	done := &Pushed{Reference: r.text, Bytes: first.Size, Signed: len(layers) == 2}
	done.Digest, done.Known, err = c.publish(ctx, r, ArtifactType, layers,
		map[string]string{ocispec.AnnotationTitle: m.Name, ocispec.AnnotationVersion: m.Version}, false)
	if err != nil {
		return nil, err
	}
	return done, nil
}

// PushIndex publishes the file of an index under a tag, which has named another until then.
func (c *Client) PushIndex(ctx context.Context, file string, r Reference) (*Pushed, error) {
	if r.oci.ValidateReferenceAsTag() != nil {
		return nil, &diagnostic.Error{Kind: ErrReference, Path: r.text, Found: "found no tag of a registry",
			Needed: "oci://HOST/NAME:TAG"}
	}
	if _, err := ReadIndex(ctx, file); err != nil {
		return nil, err
	}
	l, err := layerOf(file, "index.yaml", indexType, mostIndex)
	if err != nil {
		return nil, err
	}
	done := &Pushed{Reference: r.text, Bytes: l.Size}
	done.Digest, done.Known, err = c.publish(ctx, r, IndexType, []layer{*l}, nil, true)
	if err != nil {
		return nil, err
	}
	return done, nil
}

// layer is a file that becomes one.
type layer struct {
	ocispec.Descriptor
	path string
}

// layerOf reads a file once, for its digest.
func layerOf(file, name, kind string, most int64) (*layer, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	hash := digest.SHA256.Digester()
	size, err := io.Copy(hash.Hash(), io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if size == 0 || size > most {
		return nil, &diagnostic.Error{Kind: ErrContent, Path: file,
			Found: fmt.Sprintf("found a file of %d bytes or more", size), Needed: fmt.Sprintf("1 to %d", most)}
	}
	return &layer{ocispec.Descriptor{MediaType: kind, Digest: hash.Digest(), Size: size,
		Annotations: map[string]string{ocispec.AnnotationTitle: name}}, file}, nil
}

// publish pushes layers, and a manifest of them under a tag. known says that it was there.
func (c *Client) publish(ctx context.Context, r Reference, kind string, layers []layer, annotations map[string]string,
	replace bool) (made string, known bool, err error) {
	o := oras.PackManifestOptions{ManifestAnnotations: map[string]string{ocispec.AnnotationCreated: created}}
	maps.Copy(o.ManifestAnnotations, annotations)
	for _, l := range layers {
		o.Layers = append(o.Layers, l.Descriptor)
	}
	// The manifest is made here first: what is there already is known by its digest.
	store := memory.New()
	d, err := oras.PackManifest(ctx, store, oras.PackManifestVersion1_1, kind, o)
	if err != nil {
		return "", false, err
	}
	repository := c.repository(r)
	switch there, err := repository.Resolve(ctx, r.oci.Reference); {
	case err == nil && there.Digest == d.Digest:
		return d.Digest.String(), true, nil
	case err == nil && !replace:
		return "", false, &diagnostic.Error{Kind: ErrExists, Path: r.text,
			Found:  "found another artifact of that version, " + there.Digest.String(),
			Needed: "a version that is not there: who has one locked must go on getting it",
			Fix:    "give the plugin a new version"}
	case err != nil && !errors.Is(err, errdef.ErrNotFound):
		return "", false, c.worded(ctx, r.text, err)
	}
	push := func(d ocispec.Descriptor, open func() (io.ReadCloser, error)) error {
		if known, err := repository.Blobs().Exists(ctx, d); err != nil || known {
			return err
		}
		from, err := open()
		if err != nil {
			return err
		}
		defer from.Close()
		return repository.Blobs().Push(ctx, d, from)
	}
	err = push(ocispec.DescriptorEmptyJSON, func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(ocispec.DescriptorEmptyJSON.Data)), nil
	})
	for _, l := range layers {
		if err == nil {
			// a file that changed is another digest: refused
			err = push(l.Descriptor, func() (io.ReadCloser, error) { return os.Open(l.path) })
		}
	}
	if err == nil {
		err = pushManifest(ctx, repository, store, d, r.oci.Reference)
	}
	if err != nil {
		return "", false, c.worded(ctx, r.text, err)
	}
	return d.Digest.String(), false, nil
}

// pushManifest is last: an artifact that can be found is whole.
func pushManifest(ctx context.Context, to *remote.Repository, from *memory.Store, d ocispec.Descriptor,
	tag string) error {
	body, err := from.Fetch(ctx, d)
	if err != nil {
		return err
	}
	defer body.Close()
	return to.PushReference(ctx, d, body, tag)
}
