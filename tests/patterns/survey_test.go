package patterns

import (
	"fmt"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/pattern"
	"github.com/opgraft/graft/models"
)

func TestSurvey(t *testing.T) {
	m, err := manifest.Read("layer-norm")
	if err != nil {
		t.Fatal(err)
	}
	op := &m.Operators[0]
	for _, f := range op.Forms() {
		fmt.Println(len(f.Form.Nodes), f.Form.Choices, f.With.Nodes[0].In, f.With.Nodes[0].Out)
	}
	for _, f := range models.Fixtures() {
		if f.Exporter == "full" {
			continue
		}
		b, err := f.Bytes(1)
		if err != nil {
			t.Fatal(err)
		}
		mo, err := model.Parse(b, "")
		if err != nil {
			t.Fatal(err)
		}
		g, err := graph.New(mo.Proto(), mo)
		if err != nil {
			t.Fatal(err)
		}
		shapes := graph.Infer(g)
		finder := pattern.NewFinder(g, shapes)
		taken := map[*graph.Node]bool{}
		got := map[string]int{}
		for _, form := range op.Forms() {
			finder.Each(form.Form, func(n *graph.Node) bool { return taken[n] }, func(m *pattern.Match) {
				for _, n := range m.Nodes {
					taken[n] = true
				}
				got[fmt.Sprintf("%d", len(m.Nodes))]++
				if why := m.Unequal(); why != "" {
					got[why]++
				}
			})
		}
		want := map[string]int{}
		g.Walk(func(n *graph.Node) {
			if n.Is("LayerNormalization") {
				want["ln"]++
				if n.In[0].Producer.Is("Add") {
					want["add"]++
				}
				if !taken[n] {
					fmt.Println("missed", n.Path(), shapes.Of(n.In[0]), n.Proto.Attribute)
				}
			}
			if n.Is("Sqrt") && strings.Contains(f.Name, "deberta") {
				fmt.Println("sqrt", n.Path(), taken[n])
			}
		})
		fmt.Println(f, got, want)
		mo.Close()
	}
}
