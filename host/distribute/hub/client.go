package hub

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/distribute/stall"
)

// Options say how servers are talked to.
type Options struct {
	// Stall is how long a server may send nothing; 0 is 30 seconds.
	Stall time.Duration
	// Progress is told of the bytes that are there, of all that are to come, by one goroutine at a time.
	Progress func(done, total int64)
	// Say is told what a person may wonder about: a wait for another process, or for a busy server. Several goroutines
	// may call it.
	Say func(text string)
}

// Client brings models.
type Client struct {
	s         *Settings
	o         Options
	http      *http.Client
	firstWait time.Duration // before the first retry
}

// Retries of what failed for a while: how many without a gain of retryGain bytes, and the longest wait between two,
// the server's wish included.
const (
	retries     = 5
	retryGain   = 1 << 20
	longestWait = 10 * time.Second
	longestWish = 5 * time.Minute
)

// New makes a client.
func New(s *Settings, o Options) *Client {
	if o.Stall == 0 {
		o.Stall = 30 * time.Second
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	if o.Say == nil {
		o.Say = func(string) {}
	}
	last := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{s: s, o: o, http: &http.Client{Transport: stall.Transport(o.Stall), CheckRedirect: last},
		firstWait: 500 * time.Millisecond}
}

// passing is a failure that another try may not have.
type passing struct {
	err   error
	after time.Duration // that the server asks for
}

func (p *passing) Error() string { return p.err.Error() }
func (p *passing) Unwrap() error { return p.err }

// again calls a function until it succeeds, fails for good, or fails too often without a gain of bytes.
func (c *Client) again(ctx context.Context, what string, try func() (gain int64, err error)) error {
	for failures := 0; ; {
		gain, err := try()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var p *passing
		if !errors.As(err, &p) {
			return err
		}
		if gain >= retryGain {
			failures = 0
		}
		if failures++; failures > retries || p.after > longestWish {
			return p.err
		}
		wait := min(c.firstWait<<(failures-1), longestWait)
		wait = max(wait/2+rand.N(wait/2+1), p.after)
		if wait >= 2*time.Second {
			c.o.Say(fmt.Sprintf("%s: %v; trying again in %v", what, p.err, wait.Round(time.Second)))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// home says whether a URL is one of the endpoint, which may see the token.
func (c *Client) home(u *url.URL) bool { return sameOrigin(u, c.s.Endpoint) }

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// get asks for a URL and follows where it leads. Each answer of the endpoint goes through see, redirects too. The
// status of the answer is one of success; its body is the caller's to close.
func (c *Client) get(ctx context.Context, r Reference, u *url.URL, header http.Header,
	see func(*http.Response) error) (*http.Response, error) {
	shown := u.Redacted()
	for range mostHops {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return nil, content(shown, "found an address that is none", "")
		}
		for name, values := range header {
			request.Header[name] = values
		}
		request.Header.Set("User-Agent", "graft")
		request.Header.Set("Accept-Encoding", "identity") // the bytes of the file, whose hash is known
		if c.s.Token != "" && c.home(u) {
			request.Header.Set("Authorization", "Bearer "+c.s.Token)
		}
		answer, err := c.http.Do(request)
		if err != nil {
			return nil, c.unreached(ctx, u, err)
		}
		if c.home(u) && answer.StatusCode < 400 {
			if err := see(answer); err != nil {
				answer.Body.Close()
				return nil, err
			}
		}
		switch answer.StatusCode {
		case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
			http.StatusPermanentRedirect:
			answer.Body.Close()
			next, err := answer.Location()
			if err != nil || next.Scheme != "https" && next.Scheme != "http" || next.Host == "" {
				return nil, content(shown, "the server leads to "+quoted(answer.Header.Get("Location")), "an address")
			}
			if u.Scheme == "https" && next.Scheme == "http" {
				return nil, content(shown, "the server leads from https to http, to "+clipped(next.Host), "https")
			}
			next.User = nil
			u = next
			continue
		}
		if err := c.refused(r, u, shown, answer); err != nil {
			answer.Body.Close()
			return nil, err
		}
		return answer, nil
	}
	return nil, content(shown, fmt.Sprintf("the server leads on and on, %d times", mostHops), "a file")
}

// unreached is an error of the way to a server.
func (c *Client) unreached(ctx context.Context, u *url.URL, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	e := remote(u.Scheme+"://"+u.Host, "cannot be reached: "+err.Error(), "",
		"check the network, HF_ENDPOINT and HTTPS_PROXY; HF_HUB_OFFLINE=1 takes what the cache has", err)
	var certificate *tls.CertificateVerificationError
	var host x509.HostnameError
	var plain tls.RecordHeaderError
	if errors.As(err, &certificate) || errors.As(err, &host) || errors.As(err, &plain) ||
		strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") ||
		strings.Contains(err.Error(), "failed to parse Location header") {
		return e
	}
	return &passing{err: e}
}

// refused is the error of an answer that is no success.
func (c *Client) refused(r Reference, u *url.URL, shown string, answer *http.Response) error {
	status := answer.StatusCode
	said := fmt.Sprintf("the server answers %d %s", status, http.StatusText(status))
	if message := answer.Header.Get("X-Error-Message"); message != "" && c.home(u) {
		said += ": " + strings.TrimRight(clipped(message), ".")
	}
	page := c.s.Endpoint.JoinPath(r.Repository).String()
	switch code := answer.Header.Get("X-Error-Code"); {
	case status == http.StatusOK, status == http.StatusPartialContent:
		return nil
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
		return &passing{remote(shown, said, "", "try again later", nil), wish(answer.Header.Get("Retry-After"), time.Now())}
	case status == http.StatusRequestedRangeNotSatisfiable:
		return &diagnostic.Error{Kind: ErrRemote, Path: shown, Found: said, Cause: errRange}
	case !c.home(u):
		return remote(u.Scheme+"://"+u.Host, said+" for a file of "+r.Repository, "", "try again", nil)
	case code == "GatedRepo":
		return remote(page, "the repository is gated ("+strconv.Itoa(status)+")",
			"a token of an account that its owners let in",
			"ask for access on that page, and set HF_TOKEN to a token of yours", nil)
	case code == "RevisionNotFound":
		return &diagnostic.Error{Kind: ErrChoice, Path: page, Found: "found no revision " + quoted(r.Revision),
			Needed: "a branch, a tag or a commit of it"}
	case code == "EntryNotFound":
		return content(shown, "the server lists the file and does not have it", "a file")
	case status == http.StatusUnauthorized && c.s.Token != "" && code != "RepoNotFound":
		return remote(page, "the token of "+c.s.From+" is not accepted ("+said+")", "a valid one",
			"set HF_TOKEN to a token of yours, or go without one", nil)
	case status == http.StatusUnauthorized, status == http.StatusNotFound:
		if c.s.Token == "" {
			return remote(page, "found no such repository, or one that is private", "its name, or for a private one a token",
				"check the name, or set HF_TOKEN", nil)
		}
		return remote(page, "found no such repository for the account whose token "+c.s.From+" has",
			"a repository that it may read", "check the name", nil)
	}
	return remote(shown, said, "", "", nil)
}

// errRange is that a server has no such part of a file.
var errRange = errors.New("no such part")

// wish is what a Retry-After asks for: seconds, or a time.
func wish(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseInt(text, 10, 32); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}

// getJSON reads an answer of the endpoint's API, and gives its header.
func (c *Client) getJSON(ctx context.Context, r Reference, u *url.URL, into any) (header http.Header, err error) {
	shown := u.Redacted()
	err = c.again(ctx, shown, func() (int64, error) {
		ctx, cancel := stall.Whole(ctx, stall.Small)
		defer cancel()
		answer, err := c.get(ctx, r, u, nil, func(*http.Response) error { return nil })
		if err != nil {
			return 0, err
		}
		defer answer.Body.Close()
		data, err := io.ReadAll(io.LimitReader(answer.Body, mostPage+1))
		switch {
		case err != nil:
			return 0, &passing{err: remote(shown, "the answer broke off: "+err.Error(), "", "try again", err)}
		case len(data) > mostPage:
			return 0, content(shown, fmt.Sprintf("found more than %d bytes", mostPage), "a list")
		}
		if err := json.Unmarshal(data, into); err != nil {
			return 0, remote(shown, "found no answer of Hugging Face's API: "+err.Error(), "JSON",
				"check HF_ENDPOINT, and whether a proxy answers in its place", err)
		}
		header = answer.Header
		return 0, nil
	})
	return header, err
}
