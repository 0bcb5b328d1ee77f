package blocks_test

import (
	"encoding/json"
	"testing"

	"github.com/opgraft/graft/host/blocks"
	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/models"
)

// recognise runs recognition over a fixture's graph.
func recognise(t *testing.T, f models.Fixture) *blocks.Report {
	t.Helper()
	b, err := f.Bytes(1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Parse(b, "")
	if err != nil {
		t.Fatal(err)
	}
	g, err := graph.New(m.Proto(), m)
	if err != nil {
		t.Fatal(err)
	}
	return blocks.Find(g, graph.Infer(g))
}

func TestFixtures(t *testing.T) {
	for _, f := range models.Fixtures() {
		if f.Exporter == "full" {
			continue
		}
		t.Run(f.String(), func(t *testing.T) {
			r := recognise(t, f)
			for _, u := range r.Unrecognised {
				t.Errorf("%s: %s", u.Node, u.Reason)
			}
			for _, b := range r.Blocks {
				j, _ := json.Marshal(b.Attention)
				t.Logf("%s\n  %s %s %s %s %s\n  %s", b.Node, b.Wiring.QueryLayout, b.Wiring.KeyLayout, b.Wiring.ValueLayout, b.Wiring.OutputLayout, b.Obstacle, j)
			}
		})
	}
}
