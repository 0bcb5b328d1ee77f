package generate

import (
	"github.com/opgraft/graft/host/decode/modeldir"
	"github.com/opgraft/graft/host/speech"
	"github.com/opgraft/graft/host/vision"
)

// Files makes of a file what an encoder reads. It is for concurrent use.
type Files interface {
	File(path string) ([]float32, error) // values of the shape
	Shape() []int64                      // of one file: [1, mel bins, frames] or [1, channels, height, width]
	Kind() string                        // what is read: "sound" or "images"
}

// OpenFiles reads how a model folder's encoder wants its files, nil for one that reads tokens.
func OpenFiles(folder string, config *modeldir.Config) (Files, error) {
	switch shape := config.FeatureShape(); len(shape) {
	case 0:
		return nil, nil
	case 4:
		p, err := vision.Open(folder, shape)
		return p, err
	default:
		e, err := speech.Open(folder, shape)
		return e, err
	}
}
