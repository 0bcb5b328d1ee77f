"""What Hugging Face's library makes of a cache, as JSON: library.py scan | local | download | folder DIR, with a repository and
patterns of files after it."""

import json
import sys

from huggingface_hub import scan_cache_dir, snapshot_download


def scan():
    info = scan_cache_dir()
    return {
        "warnings": [str(w) for w in info.warnings],
        "repositories": {
            r.repo_id: {
                "bytes": r.size_on_disk,
                "refs": {name: revision.commit_hash for name, revision in r.refs.items()},
                "files": sorted(str(f.file_path.relative_to(v.snapshot_path)) for v in r.revisions for f in v.files),
                "detached": [v.commit_hash for v in r.revisions if not v.refs],
            }
            for r in info.repos
        },
    }


def main(action, *arguments):
    if action == "scan":
        return scan()
    if action == "local":
        return snapshot_download(arguments[0], local_files_only=True)
    if action == "download":
        return snapshot_download(arguments[0], allow_patterns=list(arguments[1:]) or None)
    if action == "folder":
        return snapshot_download(arguments[1], local_dir=arguments[0], allow_patterns=list(arguments[2:]))
    if action == "delete":
        info = scan_cache_dir()
        info.delete_revisions(*[v.commit_hash for r in info.repos if r.repo_id == arguments[0] for v in r.revisions]).execute()
        return scan()
    raise SystemExit(f"no action {action}")


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
