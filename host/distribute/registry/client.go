package registry

import (
	"fmt"
	"net/http"
	"time"

	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/retry"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/distribute/stall"
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
	again := retry.NewTransport(stall.Transport(o.Stall))
	again.Policy = func() retry.Policy {
		return &retry.GenericPolicy{Retryable: retry.DefaultPredicate, Backoff: retry.ExponentialBackoff(firstWait, 2, 0.1),
			MinWait: firstWait, MaxWait: lastWait, MaxRetry: retries}
	}
	c := &Client{o: o}
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, failed("Docker's configuration", "found "+err.Error(),
			"correct it, or set DOCKER_CONFIG to another folder", err)
	}
	c.auth = &auth.Client{Client: &http.Client{Transport: again, CheckRedirect: follow}, Cache: auth.NewCache(),
		Credential: credentials.Credential(store)}
	c.auth.SetUserAgent("graft")
	return c, nil
}

// follow lets a server lead elsewhere, a few times, and from TLS to TLS alone.
func follow(next *http.Request, before []*http.Request) error {
	from := before[len(before)-1].URL
	switch {
	case len(before) > mostHops:
		return other(before[0].URL.Redacted(), fmt.Sprintf("the server leads on and on, %d times", mostHops), "a file", nil)
	case from.Scheme == "https" && next.URL.Scheme != "https":
		return other(from.Redacted(), "the server leads from https to "+next.URL.Scheme+", to "+
			diagnostic.Quote(diagnostic.Clip(next.URL.Host)), "https", nil)
	}
	return nil
}

// repository is that of a reference.
func (c *Client) repository(r Reference) *remote.Repository {
	return &remote.Repository{Client: c.auth, Reference: r.oci, PlainHTTP: c.o.PlainHTTP, MaxMetadataBytes: mostManifest}
}
