package sessions

import (
	"testing"

	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// TestShare: what a session says about sharing its weights counts before what all are given.
func TestShare(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	for _, c := range []struct {
		all   shared.Wish
		entry map[string]string
		want  shared.Wish
	}{
		{shared.LargePages, nil, shared.LargePages},
		{shared.Always, nil, shared.Always},
		{shared.Never, nil, shared.Never},
		{shared.LargePages, map[string]string{ConfigShare: "1"}, shared.Always},
		{shared.Never, map[string]string{ConfigShare: "1"}, shared.Always},
		{shared.LargePages, map[string]string{ConfigShare: "0"}, shared.Never},
		{shared.Always, map[string]string{ConfigShare: "0"}, shared.Never},
		{shared.Always, map[string]string{ConfigShare: ""}, shared.Never},
	} {
		var got shared.Wish = -1
		s := must.Value(session.FromBytes(l, joining(t),
			session.Options{Config: c.entry, Patcher: func(r session.Request) (*session.Patch, error) {
				got = (&Patcher{Share: c.all}).share(r)
				return nil, nil
			}}))(t)
		s.Close()
		must.Equal(t, got, c.want)
	}
}
