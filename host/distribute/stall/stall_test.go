package stall

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/opgraft/graft/internal/must"
)

// A body that goes on slowly arrives; one that stands still ends.
func TestStall(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 5 {
			_, _ = io.WriteString(w, "part")
			w.(http.Flusher).Flush()
			time.Sleep(100 * time.Millisecond)
		}
		if r.URL.Path == "/stalls" {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	}))
	defer server.Close()
	client := &http.Client{Transport: Transport(300 * time.Millisecond)}
	for path, stalls := range map[string]bool{"/": false, "/stalls": true} {
		answer := must.Value(client.Get(server.URL + path))(t)
		data, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if len(data) != 20 || errors.Is(err, ErrStalled) != stalls || !stalls && err != nil {
			t.Errorf("%s: %d bytes, %v", path, len(data), err)
		}
	}
}

// A small answer ends in time, however steadily it drips.
func TestWhole(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, "part")
			w.(http.Flusher).Flush()
		}
	}))
	defer server.Close()
	ctx, cancel := Whole(t.Context(), 50*time.Millisecond)
	defer cancel()
	request := must.Value(http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil))(t)
	answer, err := (&http.Client{Transport: Transport(time.Minute)}).Do(request)
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
	must.Fail(t, err, ErrStalled, "the server sends nothing but a part in 50ms")
}

// A body that drips ends after a window in which too little came; one that is read slowly, or pauses, does not.
func TestSlow(t *testing.T) {
	for _, one := range []struct {
		waited time.Duration
		came   int
		slow   int // the reads after which it is; 0 for never
	}{
		{time.Second, 1, 60}, {time.Second, least / 60, 60}, {time.Second, least/60 + 1, 0}, {time.Microsecond, 1, 0},
		{29 * time.Second, least / 2, 0}, {2 * window, 1, 1},
	} {
		var r rate
		for i := 1; i <= 1000; i++ {
			if r.slow(one.waited, one.came) {
				must.Equal(t, i, one.slow, one)
				break
			}
			if i == 1000 {
				must.Equal(t, 0, one.slow, one)
			}
		}
	}
	body := &watchedBody{ReadCloser: io.NopCloser(strings.NewReader("drop")), ctx: t.Context(), rate: rate{waited: window},
		wait: window, timer: time.NewTimer(window), cancel: func(error) {}}
	n, err := body.Read(make([]byte, 1))
	must.Equal(t, n, 1)
	must.Fail(t, err, ErrStalled, "less than 64 kB in 1m0s")
}
