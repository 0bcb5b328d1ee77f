package pattern

import (
	"encoding/json"
	"github.com/opgraft/graft/internal/must"
	"math"
	"testing"
)

func TestJSON(t *testing.T) {
	data, err := json.Marshal([]any{
		Attribute{Name: "by", Value: Capture("alpha")}, Attribute{Name: "fill", Value: math.Inf(-1)},
		Attribute{Name: "fs", Value: []float64{math.NaN(), 1}}, Floats{0.5, math.Inf(1)},
	})
	want := `[{"name":"by","value":"?alpha"},{"name":"fill","value":"-Infinity"},{"name":"fs","value":["NaN",1]},[0.5,"Infinity"]]`
	must.Succeed(t, err, data)
	must.Equal(t, string(data), want, data)
}
