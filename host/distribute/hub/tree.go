package hub

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// File is one of a repository.
type File struct {
	Path string // in the repository
	Size int64
	Hash string // SHA-256, or SHA-1 of git's blob, in hexadecimal; "" of one that is known from the cache alone
}

// git says whether the hash is that of git, for which the size stands before the content.
func (f File) git() bool { return len(f.Hash) == 40 }

// commit asks which commit a revision is.
func (c *Client) commit(ctx context.Context, r Reference) (string, error) {
	if commitPattern.MatchString(r.Revision) {
		return r.Revision, nil
	}
	var info struct {
		SHA string `json:"sha"`
	}
	u := c.s.Endpoint.JoinPath("api", "models", r.Repository, "revision")
	u = &url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path + "/" + r.Revision,
		RawPath: u.EscapedPath() + "/" + url.PathEscape(r.Revision)}
	if _, err := c.getJSON(ctx, r, u, &info); err != nil {
		return "", err
	}
	if !commitPattern.MatchString(info.SHA) {
		return "", content(u.Redacted(), "found the commit "+quoted(info.SHA), "40 hexadecimal digits")
	}
	return info.SHA, nil
}

// longestList is how long all pages of a list may take. Tests shorten it.
var longestList = 10 * time.Minute

// nextPage is the address of the next page of a list.
var nextPage = regexp.MustCompile(`<([^<>]+)>\s*;\s*rel="?next"?`)

// list asks for the files of a commit.
func (c *Client) list(ctx context.Context, r Reference, commit string) ([]File, error) {
	u := c.s.Endpoint.JoinPath("api", "models", r.Repository, "tree", commit)
	u.RawQuery = "recursive=true&expand=false"
	at := u.Redacted()
	var files []File
	seen, pages := map[string]bool{}, map[string]bool{}
	for end := time.Now().Add(longestList); u != nil; {
		if pages[u.String()] || len(pages) >= mostPages || time.Now().After(end) {
			return nil, content(at, fmt.Sprintf("found a list of files that goes on after %d pages", len(pages)),
				"one that ends")
		}
		pages[u.String()] = true
		var page []struct {
			Type string `json:"type"`
			OID  string `json:"oid"`
			Size int64  `json:"size"`
			Path string `json:"path"`
			LFS  *struct {
				OID  string `json:"oid"`
				Size int64  `json:"size"`
			} `json:"lfs"`
		}
		header, err := c.getJSON(ctx, r, u, &page)
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			if e.Type != "file" {
				continue
			}
			f := File{e.Path, e.Size, e.OID}
			if e.LFS != nil {
				f.Size, f.Hash = e.LFS.Size, strings.TrimPrefix(e.LFS.OID, "sha256:")
			}
			if err := f.check(at); err != nil {
				return nil, err
			}
			if seen[f.Path] {
				return nil, content(at, "found the file "+quoted(f.Path)+" twice", "each once")
			}
			seen[f.Path] = true
			if files = append(files, f); len(files) > mostFiles {
				return nil, content(at, fmt.Sprintf("found more than %d files", mostFiles), "fewer")
			}
		}
		if u, err = c.next(u, header.Get("Link"), at); err != nil {
			return nil, err
		}
	}
	for _, f := range files { // a file in which others would lie
		for end := strings.LastIndexByte(f.Path, '/'); end > 0; end = strings.LastIndexByte(f.Path[:end], '/') {
			if folder := f.Path[:end]; seen[folder] {
				return nil, content(at, "found "+quoted(folder)+" as a file and as a folder", "one of them")
			}
		}
	}
	return files, nil
}

// check refuses what no file of a repository has.
func (f File) check(at string) error {
	name := quoted(f.Path)
	switch why := checkPath(f.Path); {
	case why != "":
		return content(at, "found the file "+name+", "+why, "a path in it")
	case !hashPattern.MatchString(f.Hash):
		return content(at, "found the hash "+quoted(f.Hash)+" of "+name, "40 or 64 hexadecimal digits")
	case f.Size < 0 || f.Size > mostFile:
		return content(at, fmt.Sprintf("found that %s has %d bytes", name, f.Size), fmt.Sprintf("0 to %d", int64(mostFile)))
	}
	return nil
}

// next is the page after one, nil after the last. It is the endpoint's: the token goes there.
func (c *Client) next(u *url.URL, link, at string) (*url.URL, error) {
	m := nextPage.FindStringSubmatch(link)
	if m == nil {
		return nil, nil
	}
	next, err := u.Parse(m[1])
	if err != nil || !c.home(next) {
		return nil, content(at, "found the next page at "+quoted(m[1]), "one of "+c.s.Endpoint.Host)
	}
	return next, nil
}
