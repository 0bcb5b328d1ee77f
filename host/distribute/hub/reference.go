package hub

import (
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// Reference names a repository at a revision.
type Reference struct {
	Repository string // ORG/NAME, or NAME of the oldest ones
	Revision   string // a branch, a tag or a commit
}

func (r Reference) String() string { return r.Repository + "@" + r.Revision }

// defaultRevision is the branch that every repository has.
const defaultRevision = "main"

var (
	repositoryPattern = regexp.MustCompile(`^(?:[A-Za-z0-9_][A-Za-z0-9._-]*/)?[A-Za-z0-9_][A-Za-z0-9._-]*$`)
	commitPattern     = regexp.MustCompile(`^[0-9a-f]{40}$`)
	hashPattern       = regexp.MustCompile(`^(?:[0-9a-f]{40}|[0-9a-f]{64})$`)
)

// Parse reads ORG/NAME[@REVISION].
func Parse(text string) (Reference, error) {
	name, revision, given := strings.Cut(text, "@")
	if !given {
		revision = defaultRevision
	}
	bad := func(what, needed string) (Reference, error) {
		return Reference{}, misused("", what+" "+quoted(text), needed, "")
	}
	if !repositoryPattern.MatchString(name) || len(name) > 96 || strings.Contains(name, "--") ||
		strings.Contains(name, "..") ||
		strings.HasSuffix(name, ".") || strings.HasSuffix(name, "-") || strings.HasSuffix(name, ".git") {
		return bad("repository", "ORG/NAME, as in the address of its page")
	}
	if len(revision) > 250 || !filepath.IsLocal(revision) || filepath.Clean(revision) != revision || revision == "." ||
		strings.HasPrefix(revision, "-") ||
		strings.ContainsFunc(revision, func(r rune) bool {
			return unicode.IsSpace(r) || !unicode.IsPrint(r) || strings.ContainsRune(`\:?*[^~`, r)
		}) {
		return bad("revision of", "a branch, a tag or a commit after the @")
	}
	return Reference{name, revision}, nil
}

// checkPath is why a file of a repository must not be written under its path; "" for a sound one.
func checkPath(path string) string {
	switch {
	case path == "" || !filepath.IsLocal(path) || filepath.Clean(path) != path || path == ".":
		return "which leads out of the repository"
	case len(path) > mostPath || strings.Count(path, "/") > mostDepth:
		return "which is too long"
	}
	for part := range strings.SplitSeq(path, "/") {
		if len(part) > mostName {
			return "which is too long"
		}
	}
	if strings.ContainsFunc(path, func(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }) {
		return "which has control characters"
	}
	return ""
}
