package model

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/storage"
)

// Names in the cache of Hugging Face's library (huggingface_hub 2 and newer), which has content of all repositories
// in one store, CACHE/blobs/XX/HASH, and links to it in the blobs of a repository.
const (
	blobsFolder      = "blobs"
	repositoryPrefix = "models--"
	storeMarker      = ".huggingface-shared-blobs"
	storeVersion     = "1\n"
)

// mostLinks is how many links of a model's path are followed.
const mostLinks = 8

// storeRoots are the folders of such a cache that may hold the data of the model at path, whose links lead to
// resolved: the store, and the blobs of the repository, through which its links lead. None of a model that lies in
// neither.
func storeRoots(path, resolved string) []string {
	own := filepath.Dir(resolved)
	cache := ""
	switch above := filepath.Dir(own); {
	case isBlobs(own):
		cache = filepath.Dir(above)
	case filepath.Base(above) == blobsFolder:
		cache = filepath.Dir(above)
	default:
		return nil
	}
	store := filepath.Join(cache, blobsFolder)
	if mark, err := storage.ReadRegular(filepath.Join(store, storeMarker), 64); err != nil ||
		string(mark) != storeVersion {
		return nil
	}
	roots := []string{store}
	for range mostLinks {
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			folder, err := filepath.EvalSymlinks(filepath.Dir(path))
			if err != nil {
				break
			}
			target = filepath.Join(folder, target)
		}
		path = target
		if folder := filepath.Dir(path); isBlobs(folder) && filepath.Dir(filepath.Dir(folder)) == cache {
			roots = append(roots, folder)
		}
	}
	return roots
}

// isBlobs says whether a folder is that of a repository's blobs.
func isBlobs(folder string) bool {
	return filepath.Base(folder) == blobsFolder && strings.HasPrefix(filepath.Base(filepath.Dir(folder)), repositoryPrefix)
}

// addRoots takes folders that may hold data, each once.
func (r *resolver) addRoots(roots []string) {
	for _, root := range roots {
		if !slices.Contains(r.roots, root) {
			r.roots = append(r.roots, root)
		}
	}
}
