"""`python reading.py BUCKET`: every artifact of a bucket, its bytes read and hashed again, as JSON."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import s3fs


def main(bucket: str) -> None:
    store = s3fs.S3FileSystem()
    if not store.exists(bucket):
        store.mkdir(bucket)
    found: dict[str, Any] = {}
    for path in store.find(bucket):
        if path.endswith("/manifest.json") and "/artifacts/" in path:
            folder = path.removesuffix("/manifest.json")
            files = json.loads(store.cat_file(path))["files"]
            damaged = [
                file["path"]
                for file in files
                if file.get("sha256")
                and hashlib.sha256(store.cat_file(f"{folder}/files/{file['path']}")).hexdigest() != file["sha256"]
            ]
            found[f"s3://{folder}"] = {"files": files, "damaged": damaged}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
