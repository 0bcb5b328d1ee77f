// Package stall ends HTTP answers whose server falls silent: a body may take hours, but not stand still.
package stall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// ErrStalled is that a server was silent for too long, or sent next to nothing.
var ErrStalled = errors.New("the server sends nothing")

// The least that a body brings in each of the windows in which it is waited for.
const (
	window = time.Minute
	least  = 64 << 10
)

// Whole bounds the time in which all of a small answer arrives, a page of a list or a manifest, at whatever rate: with
// it the transport's bodies end. It is minutes.
func Whole(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, within, fmt.Errorf("%w but a part in %v", ErrStalled, within))
}

// Small is how long that is.
const Small = 5 * time.Minute

// rate is what came in a window.
type rate struct {
	waited time.Duration
	came   int
}

// slow counts what a wait brought, and reports that a window ends with too little.
func (r *rate) slow(waited time.Duration, came int) bool {
	r.waited, r.came = r.waited+waited, r.came+came
	if r.waited < window {
		return false
	}
	slow := r.came < least
	*r = rate{}
	return slow
}

// Transport is Go's default one, with each wait for a server bounded: for its connection, its TLS, its header and
// each part of a body, of which some must come.
func Transport(wait time.Duration) http.RoundTripper {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.DialContext = (&net.Dialer{Timeout: wait}).DialContext
	base.TLSHandshakeTimeout, base.ResponseHeaderTimeout = wait, wait
	return &watched{base, wait}
}

// watched ends requests whose body stops arriving.
type watched struct {
	base http.RoundTripper
	wait time.Duration
}

func (w *watched) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	answer, err := w.base.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	b := &watchedBody{ReadCloser: answer.Body, ctx: ctx, cancel: cancel, wait: w.wait}
	b.timer = time.AfterFunc(w.wait, func() { cancel(fmt.Errorf("%w for %v", ErrStalled, w.wait)) })
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
	wait   time.Duration
	rate   rate
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.wait)
	from := time.Now()
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if b.rate.slow(time.Since(from), n) && err == nil {
		err = fmt.Errorf("%w but a little: less than %d kB in %v", ErrStalled, least>>10, window)
		b.cancel(err)
	}
	if cause := context.Cause(b.ctx); err != nil && errors.Is(cause, ErrStalled) {
		err = cause
	}
	return n, err
}

func (b *watchedBody) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}
