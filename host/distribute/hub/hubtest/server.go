// Package hubtest is a server that speaks as a Hugging Face endpoint does, and a second one that gives its large
// files, for tests.
package hubtest

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Repository is one of the server's.
type Repository struct {
	Commit string
	Branch string            // besides main
	Files  map[string][]byte // by path
	Small  int               // files of fewer bytes are git's own, the others LFS's; 0 is 1,000
	Token  string            // who may read; "" is everybody
	Gated  bool              // it is known to all, and read with the token
	Page   int               // entries of a page of the list; 0 is all
}

// Commit is one that tests may name.
const Commit = "0123456789abcdef0123456789abcdef01234567"

// SHA256 and GitHash are the hashes of a file, as an endpoint has them.
func SHA256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func GitHash(data []byte) string {
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(data)), data...))
	return hex.EncodeToString(sum[:])
}

// Large says whether a file lies with LFS.
func (r *Repository) Large(data []byte) bool {
	small := r.Small
	if small == 0 {
		small = 1000
	}
	return len(data) >= small
}

// Hash is the hash of a file, by which caches name it.
func (r *Repository) Hash(path string) string {
	if data := r.Files[path]; r.Large(data) {
		return SHA256(data)
	}
	return GitHash(r.Files[path])
}

// Folder reads a repository of a folder's files.
func Folder(folder string) (*Repository, error) {
	r := &Repository{Commit: Commit, Files: map[string][]byte{}}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err == nil {
			r.Files[filepath.ToSlash(name)], err = os.ReadFile(path)
		}
		return err
	})
	return r, err
}

// Server is the endpoint, and the server of large files, as the clients of one see them.
type Server struct {
	Endpoint, Store *httptest.Server
	Repositories    map[string]*Repository
	// Before is asked first, on both servers; one that returns true has answered.
	Before func(w http.ResponseWriter, r *http.Request) bool

	mu    sync.Mutex
	asked []string // requests of both, "METHOD PATH", those of a part with its beginning
	leaks []string // requests of the store that had a token
}

// New starts both. Close ends them.
func New(repositories map[string]*Repository) *Server {
	s := &Server{Repositories: repositories}
	s.Endpoint = httptest.NewServer(s.record(s.endpoint))
	s.Store = httptest.NewServer(s.record(s.store))
	return s
}

// Close ends both servers, and what clients still wait for.
func (s *Server) Close() {
	for _, one := range []*httptest.Server{s.Endpoint, s.Store} {
		one.CloseClientConnections()
		one.Close()
	}
}

// Asked are the requests until now whose path has a text in it.
func (s *Server) Asked(text string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, one := range s.asked {
		if strings.Contains(one, text) {
			list = append(list, one)
		}
	}
	return list
}

// Forget drops the requests until now.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = nil
}

// Leaks are requests by which a token reached the store.
func (s *Server) Leaks() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.leaks)
}

func (s *Server) record(then http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		what := r.Method + " " + r.URL.Path
		if part := r.Header.Get("Range"); part != "" {
			what += " " + part
		}
		s.asked = append(s.asked, what)
		if strings.HasPrefix(r.URL.Path, "/store/") && r.Header.Get("Authorization") != "" {
			s.leaks = append(s.leaks, what)
		}
		before := s.Before
		s.mu.Unlock()
		if before == nil || !before(w, r) {
			then(w, r)
		}
	})
}

// refuse answers as the endpoint does.
func refuse(w http.ResponseWriter, status int, code, message string) {
	if code != "" {
		w.Header().Set("X-Error-Code", code)
	}
	w.Header().Set("X-Error-Message", message)
	w.WriteHeader(status)
}

func (s *Server) endpoint(w http.ResponseWriter, r *http.Request) {
	path, api := strings.CutPrefix(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "api/models/")
	for name, repository := range s.Repositories {
		rest, ok := strings.CutPrefix(path, name+"/")
		if !ok {
			continue
		}
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case token != "" && !strings.HasPrefix(token, "hf_"):
			refuse(w, http.StatusUnauthorized, "", "Invalid credentials in Authorization header")
			return
		case repository.Token != "" && token != repository.Token && repository.Gated &&
			!(api && strings.HasPrefix(rest, "revision/")):
			refuse(w, http.StatusForbidden, "GatedRepo", "Access to model "+name+" is restricted")
			return
		case repository.Token != "" && token != repository.Token && !repository.Gated:
			s.missing(w, token)
			return
		}
		verb, rest, _ := strings.Cut(rest, "/")
		revision, file, _ := strings.Cut(rest, "/")
		revision, _ = url.PathUnescape(revision)
		file, _ = url.PathUnescape(file)
		if revision != "main" && revision != repository.Commit && (revision != repository.Branch || revision == "") {
			refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revision)
			return
		}
		switch {
		case api && verb == "revision":
			answer(w, map[string]any{"id": name, "modelId": name, "sha": repository.Commit, "siblings": []any{}, "tags": []any{},
				"gated": repository.Gated, "private": repository.Token != "" && !repository.Gated})
		case api && verb == "tree":
			s.tree(w, r, repository)
		case !api && verb == "resolve":
			s.resolve(w, r, repository, file)
		default:
			http.NotFound(w, r)
		}
		return
	}
	s.missing(w, r.Header.Get("Authorization"))
}

// missing is how a repository is not there: without a token it might be a private one.
func (s *Server) missing(w http.ResponseWriter, token string) {
	if token == "" {
		refuse(w, http.StatusUnauthorized, "RepoNotFound", "Repository not found")
		return
	}
	refuse(w, http.StatusNotFound, "RepoNotFound", "Repository not found")
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(value)
}

// Entry is one of a list of files.
type Entry struct {
	Type string `json:"type"`
	OID  string `json:"oid"`
	Size int64  `json:"size"`
	Path string `json:"path"`
	LFS  *LFS   `json:"lfs,omitempty"`
}

// LFS is what such a list says of a large file.
type LFS struct {
	OID         string `json:"oid"`
	Size        int64  `json:"size"`
	PointerSize int    `json:"pointerSize"`
}

// Tree is the list of a repository's files and folders.
func (r *Repository) Tree() []Entry {
	list, folders := []Entry{}, map[string]bool{}
	for path, data := range r.Files {
		e := Entry{Type: "file", OID: GitHash(data), Size: int64(len(data)), Path: path}
		if r.Large(data) {
			e.LFS = &LFS{SHA256(data), int64(len(data)), 130}
		}
		list = append(list, e)
		for f := filepath.Dir(path); f != "."; f = filepath.Dir(f) {
			if !folders[f] {
				folders[f] = true
				list = append(list, Entry{Type: "directory", OID: GitHash([]byte(f)), Path: f})
			}
		}
	}
	slices.SortFunc(list, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return list
}

func (s *Server) tree(w http.ResponseWriter, r *http.Request, repository *Repository) {
	list := repository.Tree()
	if r.URL.Query().Get("recursive") == "" {
		list = slices.DeleteFunc(list, func(e Entry) bool { return strings.Contains(e.Path, "/") })
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	if n := repository.Page; n > 0 && from+n < len(list) {
		next := *r.URL
		q := next.Query()
		q.Set("cursor", strconv.Itoa(from+n))
		next.RawQuery = q.Encode()
		w.Header().Set("Link", fmt.Sprintf(`<%s%s>; rel="next"`, s.Endpoint.URL, next.String()))
		list = list[:from+n]
	}
	answer(w, list[from:])
}

func (s *Server) resolve(w http.ResponseWriter, r *http.Request, repository *Repository, path string) {
	data, ok := repository.Files[path]
	w.Header().Set("X-Repo-Commit", repository.Commit)
	if !ok {
		refuse(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
		return
	}
	if repository.Large(data) {
		w.Header().Set("X-Linked-Etag", `"`+SHA256(data)+`"`)
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(data)))
		http.Redirect(w, r, s.Store.URL+"/store/"+SHA256(data)+"?signature=1", http.StatusFound)
		return
	}
	w.Header().Set("ETag", `"`+GitHash(data)+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// store gives large files by their hash, parts of them too.
func (s *Server) store(w http.ResponseWriter, r *http.Request) {
	hash := strings.TrimPrefix(r.URL.Path, "/store/")
	for _, repository := range s.Repositories {
		for _, data := range repository.Files {
			if repository.Large(data) && SHA256(data) == hash {
				w.Header().Set("Content-Type", "application/octet-stream")
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
				return
			}
		}
	}
	http.NotFound(w, r)
}
