package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/retry"
)

// Options say how servers are talked to.
type Options struct {
	// PlainHTTP talks to registries without TLS, for those on the same machine.
	PlainHTTP bool
	// Stall is how long nothing may arrive; 0 is 30 seconds.
	Stall time.Duration
	// Progress is told of the bytes of an archive that arrived.
	Progress func(done, total int64)
}

// A Client talks to servers. Credentials are those of Docker's configuration.
type Client struct {
	o    Options
	http *http.Client
	auth *auth.Client
}

// Retries of requests that a server was too busy for.
const (
	retries   = 3
	firstWait = 200 * time.Millisecond
	lastWait  = 3 * time.Second
)

// New makes one.
func New(o Options) (*Client, error) {
	if o.Stall == 0 {
		o.Stall = 30 * time.Second
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.DialContext = (&net.Dialer{Timeout: o.Stall}).DialContext
	base.TLSHandshakeTimeout, base.ResponseHeaderTimeout = o.Stall, o.Stall
	again := retry.NewTransport(&watched{base, o.Stall})
	again.Policy = func() retry.Policy {
		return &retry.GenericPolicy{Retryable: retry.DefaultPredicate, Backoff: retry.ExponentialBackoff(firstWait, 2, 0.1),
			MinWait: firstWait, MaxWait: lastWait, MaxRetry: retries}
	}
	c := &Client{o: o, http: &http.Client{Transport: again}}
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, failed("Docker's configuration", "found "+err.Error(), "correct it, or set DOCKER_CONFIG to another folder", err)
	}
	c.auth = &auth.Client{Client: c.http, Cache: auth.NewCache(), Credential: credentials.Credential(store)}
	c.auth.SetUserAgent("graft")
	return c, nil
}

// repository is that of a reference.
func (c *Client) repository(r Reference) *remote.Repository {
	return &remote.Repository{Client: c.auth, Reference: r.oci, PlainHTTP: c.o.PlainHTTP, MaxMetadataBytes: mostManifest}
}

// errStalled is that a server was silent for too long.
var errStalled = errors.New("the server sends nothing")

// watched ends requests whose body stops arriving.
type watched struct {
	base  http.RoundTripper
	stall time.Duration
}

func (w *watched) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	answer, err := w.base.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	b := &watchedBody{ReadCloser: answer.Body, ctx: ctx, cancel: cancel, stall: w.stall}
	b.timer = time.AfterFunc(w.stall, func() { cancel(fmt.Errorf("%w for %v", errStalled, w.stall)) })
	b.timer.Stop()
	answer.Body = b
	return answer, nil
}

// watchedBody has a timer that runs while it is read.
type watchedBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	stall  time.Duration
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.stall)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if cause := context.Cause(b.ctx); err != nil && errors.Is(cause, errStalled) {
		err = cause
	}
	return n, err
}

func (b *watchedBody) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}
