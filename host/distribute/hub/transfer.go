package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/opgraft/graft/host/base/storage"
)

// unfinished ends the names of files of which a part is there.
const unfinished = ".incomplete"

// digest begins the hash of a file: git's has the size before the content.
func (f File) digest() hash.Hash {
	if f.git() {
		h := sha1.New()
		fmt.Fprintf(h, "blob %d\x00", f.Size)
		return h
	}
	return sha256.New()
}

// transfer is a file that is being brought.
type transfer struct {
	c         *Client
	reference Reference
	commit    string
	file      File
	to        *os.File
	digest    hash.Hash
	at        int64       // bytes that are there and hashed
	most      int64       // the most that were: more is a gain
	resumed   bool        // some of them from another time or another request
	moved     func(int64) // is told of bytes that came, or, below zero, were dropped
}

// fetch brings a file to where it is unfinished, or the rest of it, and compares its hash. What is there after an
// error goes on the next time, but for content that is wrong.
func (c *Client) fetch(ctx context.Context, r Reference, commit string, file File, part string,
	moved func(int64)) error {
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o666)
	if err != nil {
		return local(part, err, "remove it")
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return local(part, cmpErr(err, errors.New("no regular file")), "remove it")
	}
	t := &transfer{c: c, reference: r, commit: commit, file: file, to: f, moved: moved}
	if err := t.readBack(ctx); err != nil {
		return err
	}
	for again := false; ; again = true {
		if err := t.rest(ctx); err != nil {
			return err
		}
		found := hex.EncodeToString(t.digest.Sum(nil))
		if found == file.Hash {
			return storage.Sync(f)
		}
		resumed := t.resumed
		if err := t.restart(); err != nil {
			return err
		}
		if !resumed || again {
			os.Remove(part)
			return content(t.shown(), "found the hash "+found, file.Hash)
		}
		// Two halves that do not fit: once more from the start.
	}
}

func cmpErr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

func (t *transfer) shown() string { return t.c.resolve(t.reference, t.commit, t.file.Path).Redacted() }

// resolve is the address of a file.
func (c *Client) resolve(r Reference, commit, path string) *url.URL {
	u := c.s.Endpoint.JoinPath(r.Repository, "resolve", commit)
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path + "/" + path,
		RawPath: u.EscapedPath() + "/" + escape(path)}
}

func escape(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}

// readBack hashes what is there.
func (t *transfer) readBack(ctx context.Context) error {
	t.digest = t.file.digest()
	info, err := t.to.Stat()
	if err != nil {
		return local(t.to.Name(), err, "")
	}
	if info.Size() > t.file.Size {
		return t.restart()
	}
	n, err := io.Copy(t.digest, storage.Until(ctx, t.to))
	if err != nil {
		return err
	}
	t.at, t.resumed = n, n > 0
	return nil
}

// restart drops what is there.
func (t *transfer) restart() error {
	t.moved(-t.at)
	t.at, t.resumed, t.digest = 0, false, t.file.digest()
	if err := t.to.Truncate(0); err != nil {
		return local(t.to.Name(), err, "")
	}
	return nil
}

// rest brings what is missing.
func (t *transfer) rest(ctx context.Context) error {
	return t.c.again(ctx, t.file.Path, func() (int64, error) {
		for t.at < t.file.Size {
			if err := t.request(ctx); err != nil {
				gain := t.at - t.most
				t.most = max(t.most, t.at)
				return gain, err
			}
		}
		return 0, nil
	})
}

// contentRange is what a part of a file says of itself.
var contentRange = regexp.MustCompile(`^bytes (\d+)-(\d+)/(\d+|\*)$`)

// request asks once, and writes what comes.
func (t *transfer) request(ctx context.Context) error {
	header := http.Header{}
	if t.at > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", t.at))
	}
	u := t.c.resolve(t.reference, t.commit, t.file.Path)
	answer, err := t.c.get(ctx, t.reference, u, header, t.see)
	if err != nil {
		if t.at > 0 && errors.Is(err, errRange) {
			return t.restart()
		}
		return err
	}
	defer answer.Body.Close()
	size := strconv.FormatInt(t.file.Size, 10)
	switch m := contentRange.FindStringSubmatch(answer.Header.Get("Content-Range")); {
	case answer.StatusCode == http.StatusOK && t.at > 0: // the server begins anew
		if err := t.restart(); err != nil {
			return err
		}
	case answer.StatusCode == http.StatusOK:
	case t.at == 0 || m == nil || m[1] != strconv.FormatInt(t.at, 10) || m[3] != size && m[3] != "*":
		return content(t.shown(), "found the part "+quoted(answer.Header.Get("Content-Range")),
			fmt.Sprintf("bytes %d to the end of %s", t.at, size))
	}
	if answer.ContentLength >= 0 && answer.ContentLength > t.file.Size-t.at {
		return content(t.shown(), fmt.Sprintf("found %d bytes", t.at+answer.ContentLength), size+", as the list says")
	}
	if coding := answer.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return content(t.shown(), "found it encoded as "+clipped(coding), "its bytes")
	}
	return t.write(ctx, answer.Body)
}

// see compares what the endpoint says of a file with what its list says.
func (t *transfer) see(answer *http.Response) error {
	tag := answer.Header.Get("X-Linked-Etag")
	if tag == "" && answer.StatusCode < 300 {
		tag = answer.Header.Get("ETag")
	}
	tag = strings.Trim(strings.TrimPrefix(tag, "W/"), `"`)
	commit, size := answer.Header.Get("X-Repo-Commit"), answer.Header.Get("X-Linked-Size")
	switch {
	case commit != "" && commit != t.commit:
		return content(t.shown(), "found the commit "+clipped(commit), t.commit)
	case hashPattern.MatchString(tag) && len(tag) == len(t.file.Hash) && tag != t.file.Hash:
		return content(t.shown(), "found a file of hash "+tag, t.file.Hash+", as the list says")
	case size != "" && size != strconv.FormatInt(t.file.Size, 10):
		return content(t.shown(), "found a file of "+clipped(size)+" bytes", fmt.Sprintf("%d, as the list says", t.file.Size))
	}
	return nil
}

// write takes in the body of an answer.
func (t *transfer) write(ctx context.Context, body io.Reader) error {
	buffer := make([]byte, 1<<20)
	for {
		n, failure := body.Read(buffer)
		if t.at+int64(n) > t.file.Size {
			return content(t.shown(), fmt.Sprintf("found more than %d bytes", t.file.Size), "that many, as the list says")
		}
		if n > 0 {
			if _, err := t.to.WriteAt(buffer[:n], t.at); err != nil {
				return local(t.to.Name(), err, "make room; the same command goes on from there")
			}
			t.digest.Write(buffer[:n])
			t.at += int64(n)
			t.moved(int64(n))
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case failure == io.EOF && t.at == t.file.Size:
			return nil
		case failure == io.EOF:
			failure = io.ErrUnexpectedEOF
			fallthrough
		case failure != nil:
			t.resumed = true
			return &passing{err: remote(t.shown(), fmt.Sprintf("broke off after %d of %d bytes: %v", t.at, t.file.Size, failure),
				"", "try again; it goes on from there", failure)}
		}
	}
}

// bring puts a file into the cache, unless it is there.
func (c *Client) bring(ctx context.Context, in *cache, r Reference, commit string, file File,
	moved func(int64)) (brought bool, err error) {
	if in.has(file) {
		return false, nil
	}
	blob := in.blob(file.Hash)
	if err := in.folder(filepath.Dir(blob)); err != nil {
		return false, local(filepath.Dir(blob), err, in.fixed)
	}
	held, err := in.lock(ctx, file.Hash, func() {
		c.o.Say("another process is bringing " + file.Path + ", waiting for it")
	})
	if err != nil {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		return false, local(in.locks(), err, in.fixed)
	}
	defer held.Close()
	if in.has(file) { // by who held the lock before
		moved(file.Size - in.part(file))
		return false, nil
	}
	if err := c.fetch(ctx, r, commit, file, blob+unfinished, moved); err != nil {
		return false, err
	}
	if err := os.Rename(blob+unfinished, blob); err != nil {
		return false, local(blob, err, in.fixed)
	}
	if err := storage.SyncFolder(filepath.Dir(blob)); err != nil {
		return false, local(blob, err, in.fixed)
	}
	return true, nil
}
