package registry

import (
	"path"
	"strings"

	oras "oras.land/oras-go/v2/registry"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// A Reference is a place that a plugin is brought from: an artifact of a registry.
type Reference struct {
	text string
	oci  oras.Reference
}

func (r Reference) String() string { return r.text }

// Is reports a text that means a Reference, right or wrong, and no path.
func Is(text string) bool {
	scheme, _, ok := strings.Cut(text, "://")
	return ok && !strings.ContainsAny(scheme, "/.")
}

// Parse reads oci://HOST/NAME:VERSION or oci://HOST/NAME@DIGEST. In a tag the + of a version is a _.
func Parse(text string) (Reference, error) {
	bad := func(found string) (Reference, error) {
		return Reference{}, &diagnostic.Error{Kind: ErrReference, Path: text, Found: found,
			Needed: "oci://HOST/NAME:VERSION or oci://HOST/NAME@DIGEST"}
	}
	scheme, rest, _ := strings.Cut(text, "://")
	if scheme != "oci" {
		return bad("found the scheme " + diagnostic.Quote(diagnostic.Clip(scheme)))
	}
	r, err := oras.ParseReference(rest)
	if err != nil {
		return bad("found " + err.Error())
	}
	if r.Reference == "" {
		return bad("found no version and no digest")
	}
	return Reference{text: text, oci: r}, nil
}

// Accept refuses a plugin that is not the one of a reference: who holds a registry could give another, or an older
// version, with the signature that it once had.
func (r Reference) Accept(m *manifest.Manifest) error {
	name := path.Base(r.oci.Repository)
	if m.Name != name || r.oci.ValidateReferenceAsTag() == nil && r.oci.Reference != tag(m.Version) {
		return other(r.text, "found "+m.Name+" "+m.Version, "the plugin "+name+" in the version that the tag says", nil)
	}
	return nil
}

// tag is a version as a tag: these have no +.
func tag(version string) string { return strings.ReplaceAll(version, "+", "_") }
