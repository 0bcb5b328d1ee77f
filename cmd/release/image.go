package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// image writes an OCI image layout: an image without a system, from which others copy.
func (r *release) image() error {
	folder := filepath.Join(r.out, "oci")
	blob := func(media string, data []byte) (ocispec.Descriptor, error) {
		d := digest.FromBytes(data)
		return ocispec.Descriptor{MediaType: media, Digest: d, Size: int64(len(data))},
			write(filepath.Join(folder, "blobs", d.Algorithm().String(), d.Encoded()), data)
	}
	object := func(media string, value any) (ocispec.Descriptor, error) {
		data, err := json.Marshal(value)
		if err != nil {
			return ocispec.Descriptor{}, err
		}
		return blob(media, data)
	}
	labels := map[string]string{ocispec.AnnotationTitle: "graft", ocispec.AnnotationVersion: r.version,
		ocispec.AnnotationRevision: r.commit, ocispec.AnnotationSource: homepage,
		ocispec.AnnotationLicenses: "Apache-2.0", ocispec.AnnotationDescription: summary}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex,
		Annotations: labels}
	for _, p := range r.platforms {
		list, err := r.installed(p, "usr/", "usr/share/doc/graft/")
		if err != nil {
			return err
		}
		data, err := tarred(list, true, r.date)
		if err != nil {
			return err
		}
		packed, err := compressed(data)
		if err != nil {
			return err
		}
		layer, err := blob(ocispec.MediaTypeImageLayerGzip, packed)
		if err != nil {
			return err
		}
		at := r.date
		config := ocispec.Image{Created: &at, Platform: ocispec.Platform{OS: "linux", Architecture: p.goarch},
			Config:  ocispec.ImageConfig{Entrypoint: []string{"/usr/bin/graft"}, Labels: labels},
			RootFS:  ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(data)}},
			History: []ocispec.History{{Created: &at, CreatedBy: "graft release"}}}
		described, err := object(ocispec.MediaTypeImageConfig, config)
		if err != nil {
			return err
		}
		m, err := object(ocispec.MediaTypeImageManifest,
			ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
				Config: described, Layers: []ocispec.Descriptor{layer}, Annotations: labels})
		if err != nil {
			return err
		}
		m.Platform = &ocispec.Platform{OS: "linux", Architecture: p.goarch}
		index.Manifests = append(index.Manifests, m)
	}
	all, err := object(ocispec.MediaTypeImageIndex, index)
	if err != nil {
		return err
	}
	all.Annotations = map[string]string{ocispec.AnnotationRefName: r.version}
	top, err := json.Marshal(
		ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex,
			Manifests: []ocispec.Descriptor{all}})
	if err != nil {
		return err
	}
	if err := write(filepath.Join(folder, ocispec.ImageIndexFile), top); err != nil {
		return err
	}
	return write(filepath.Join(folder, ocispec.ImageLayoutFile),
		fmt.Appendf(nil, `{"imageLayoutVersion":%q}`, ocispec.ImageLayoutVersion))
}
