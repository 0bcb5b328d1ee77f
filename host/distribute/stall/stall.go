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

// ErrStalled is that a server was silent for too long.
var ErrStalled = errors.New("the server sends nothing")

// Transport is Go's default one, with each wait for a server bounded: for its connection, its TLS, its header and
// each part of a body.
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
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.wait)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
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
