package registry

import (
	"net/url"
	"path"
	"regexp"
	"strings"

	oras "oras.land/oras-go/v2/registry"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/distribute/archive"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// A Reference is a place that a plugin is brought from: an artifact of a registry, or an archive on a server.
type Reference struct {
	text string
	oci  oras.Reference // of an artifact
	url  *url.URL       // of an archive
	sum  string         // that the archive must have, SHA-256 in hexadecimal; "" where none is said
}

func (r Reference) String() string { return r.text }

// OCI reports an artifact of a registry.
func (r Reference) OCI() bool { return r.url == nil }

// Is reports a text that means a Reference, right or wrong, and no path.
func Is(text string) bool {
	scheme, _, ok := strings.Cut(text, "://")
	return ok && !strings.ContainsAny(scheme, "/.")
}

var sum = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Parse reads oci://HOST/NAME:VERSION, oci://HOST/NAME@DIGEST, or https://HOST/FILE, which may end with #sha256=HEX.
// In a tag the + of a version is a _.
func Parse(text string) (Reference, error) {
	bad := func(found string) (Reference, error) {
		return Reference{}, &diagnostic.Error{Kind: ErrReference, Path: text, Found: found,
			Needed: "oci://HOST/NAME:VERSION, oci://HOST/NAME@DIGEST, or https://HOST/FILE, which may end with #sha256=HEX"}
	}
	scheme, rest, _ := strings.Cut(text, "://")
	switch scheme {
	case "oci":
		r, err := oras.ParseReference(rest)
		if err != nil {
			return bad("found " + err.Error())
		}
		if r.Reference == "" {
			return bad("found no version and no digest")
		}
		return Reference{text: text, oci: r}, nil
	case "https":
		u, err := url.Parse(text)
		if err != nil {
			return bad("found " + err.Error())
		}
		r := Reference{text: text, url: u}
		if u.Fragment != "" {
			var ok bool
			if r.sum, ok = strings.CutPrefix(u.Fragment, "sha256="); !ok || !sum.MatchString(r.sum) {
				return bad("found the fragment #" + diagnostic.Clip(u.Fragment))
			}
		}
		u.Fragment, u.RawFragment = "", ""
		switch {
		case u.Host == "":
			return bad("found no host")
		case u.User != nil:
			return bad("found a user name, which would be recorded")
		case !archive.Is(path.Base(u.Path)):
			return bad("found a file that is no archive (.tar.gz, .tgz, .tar, .zip)")
		}
		return r, nil
	}
	return bad("found the scheme " + diagnostic.Quote(diagnostic.Clip(scheme)))
}

// Accept refuses a plugin that is not the one of a reference: who holds a registry could give another, or an older
// version, with the signature that it once had.
func (r Reference) Accept(m *manifest.Manifest) error {
	if !r.OCI() {
		return nil // the name of a file says nothing
	}
	name := path.Base(r.oci.Repository)
	if m.Name != name || r.oci.ValidateReferenceAsTag() == nil && r.oci.Reference != tag(m.Version) {
		return other(r.text, "found "+m.Name+" "+m.Version, "the plugin "+name+" in the version that the tag says", nil)
	}
	return nil
}

// tag is a version as a tag: these have no +.
func tag(version string) string { return strings.ReplaceAll(version, "+", "_") }
