package manifest

import (
	"encoding/json"
	"math"
	"testing"
)

func TestManifestJSON(t *testing.T) {
	data, err := json.Marshal([]any{
		Attribute{"by", Capture("alpha")}, Attribute{"fill", math.Inf(-1)}, Attribute{"fs", []float64{math.NaN(), 1}}, Floats{0.5, math.Inf(1)},
	})
	want := `[{"name":"by","value":"?alpha"},{"name":"fill","value":"-Infinity"},{"name":"fs","value":["NaN",1]},[0.5,"Infinity"]]`
	if err != nil || string(data) != want {
		t.Errorf("JSON %s, %v; want %s", data, err, want)
	}
}
