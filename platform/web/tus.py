"""Files in chunks: each says where it begins, so that an upload goes on where it broke off.

As in tus (https://tus.io/protocols/resumable-upload), of which these are the names of the headers and the statuses: POST makes an
upload of a name and a size, HEAD tells its offset, PATCH appends at it. 409: the chunk begins elsewhere; 423: another one is coming
in; 460: it is not what its checksum says. Nothing of a chunk that is refused is kept.
"""

from __future__ import annotations

import base64
import hashlib
import re
import tempfile
from email.utils import formatdate
from typing import IO

import anyio.to_thread
from fastapi import APIRouter, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from starlette.requests import ClientDisconnect

from .records import Upload
from .site import At, Site

CHUNK = 8 << 20  # bytes that the page sends at once
MOST_CHUNK = 16 << 20
_PIECE = 1 << 20  # that is written at once
_SIZE = re.compile(r"\d{1,18}", re.ASCII)

router = APIRouter(prefix="/uploads")


@router.post("")
def begin(site: At, request: Request) -> Response:
    name, size = request.query_params.get("name", ""), request.headers.get("upload-length", "")
    if not _SIZE.fullmatch(size):
        raise HTTPException(400, "Upload-Length says of how many bytes the file is.")
    upload = site.uploads.begin(name, int(size), request.scope["person"].name)
    return JSONResponse(
        {"id": upload.id, "chunk": CHUNK}, 201, {"Location": f"{site.base}/uploads/{upload.id}", **_stands(site, upload, 0)}
    )


@router.head("/{id}")
def look(site: At, id: str) -> Response:
    found = site.uploads.find(id)
    if found is None:
        return Response(status_code=404)
    return Response(headers={"Upload-Length": str(found[0].size), **_stands(site, *found)})


@router.patch("/{id}")
async def go_on(site: At, id: str, request: Request) -> Response:
    with site.uploads.alone(id) as alone:
        if not alone:
            raise HTTPException(423, "Another chunk of this file is coming in: go on once it is here.")
        upload, offset = await run_in_threadpool(site.uploads.find, id) or (None, 0)
        if upload is None:
            raise HTTPException(404)
        if request.headers.get("upload-offset", "") != str(offset):
            raise HTTPException(409, f"{offset} bytes are here: go on from there.", _stands(site, upload, offset))
        digest = _digest(request.headers.get("upload-checksum"))
        with tempfile.TemporaryFile(dir=site.uploads.folder) as chunk:
            try:
                received, hashed = await _receive(site, request, chunk, min(MOST_CHUNK, upload.size - offset))
            except ClientDisconnect:
                return Response(status_code=400)  # which nobody hears
            if digest not in (None, hashed):
                raise HTTPException(460, "The chunk is not what its checksum says: send it again.")
            await anyio.to_thread.run_sync(site.uploads.append, id, chunk, limiter=site.uploads.threads)
        return Response(status_code=204, headers=_stands(site, upload, offset + received))


@router.delete("/{id}")
def forget(site: At, id: str) -> Response:
    site.uploads.delete(id)
    return Response(status_code=204)


async def _receive(site: Site, request: Request, to: IO[bytes], most: int) -> tuple[int, bytes]:
    """Bytes that have come, and their SHA-256. Raises HTTPException: more than there may be."""
    size, hashed, piece = 0, hashlib.sha256(), bytearray()

    def write() -> None:
        hashed.update(piece)
        to.write(piece)
        piece.clear()

    async for part in request.stream():
        piece += part
        size += len(part)
        if size > most:
            raise HTTPException(413, "That is more than the file was said to have, or than a chunk may have.")
        if len(piece) >= _PIECE:
            await anyio.to_thread.run_sync(write, limiter=site.uploads.threads)
    await anyio.to_thread.run_sync(write, limiter=site.uploads.threads)
    return size, hashed.digest()


def _digest(checksum: str | None) -> bytes | None:
    """The SHA-256 that a header says; None: there is none. Raises HTTPException: it says no SHA-256."""
    if checksum is None:
        return None
    kind, _, said = checksum.partition(" ")
    try:
        digest = base64.b64decode(said, validate=True)
    except ValueError:
        digest = b""
    if kind != "sha256" or len(digest) != hashlib.sha256().digest_size:
        raise HTTPException(400, "Upload-Checksum is sha256 and the digest in Base64.")
    return digest


def _stands(site: Site, upload: Upload, offset: int) -> dict[str, str]:
    return {"Upload-Offset": str(offset), "Upload-Expires": formatdate(site.uploads.until(upload), usegmt=True)}
