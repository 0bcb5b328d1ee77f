package generate

import (
	"slices"

	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/speech"
	"github.com/opgraft/graft/host/generate/vision"
)

// Files makes of a file what an encoder reads. It is for concurrent use.
type Files interface {
	File(path string) ([]float32, error) // values of the shape
	Shape() []int64                      // of one file: [1, mel bins, frames], [1, -1] or [1, channels, height, width]
	Kind() string                        // what is read: "sound" or "images"
}

// Features are those of a file.
func Features(files Files, path string) (*engine.Features, error) {
	values, err := files.File(path)
	if err != nil {
		return nil, err
	}
	shape := slices.Clone(files.Shape())
	if last := len(shape) - 1; shape[last] < 0 { // as long as the file is
		shape[last] = int64(len(values))
	}
	return &engine.Features{Values: values, Shape: shape}, nil
}

// OpenFiles reads how a model folder's encoder wants its files, nil for one that reads tokens.
func OpenFiles(folder string, config *modeldir.Config) (Files, error) {
	switch shape := config.FeatureShape(); len(shape) {
	case 0:
		return nil, nil
	case 2:
		s, err := speech.OpenSamples(folder, modeldir.MinSamples, modeldir.MaxSamples)
		return s, err
	case 4:
		p, err := vision.Open(folder, shape)
		return p, err
	default:
		e, err := speech.Open(folder, shape)
		return e, err
	}
}
