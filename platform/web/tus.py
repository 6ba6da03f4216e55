"""Files in chunks: each says where it begins, so that an upload goes on where it broke off.

As in tus (https://tus.io/protocols/resumable-upload), of which these are the names of the headers: POST makes an upload of a name
and a size, HEAD tells its offset, PATCH appends at it.
"""

from __future__ import annotations

import os

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from .site import At

CHUNK = 8 << 20  # bytes that the page sends at once
MOST_CHUNK = 64 << 20

router = APIRouter(prefix="/uploads")


@router.post("")
async def begin(site: At, request: Request) -> Response:
    name, size = request.query_params.get("name", ""), request.headers.get("upload-length", "")
    if not size.isdecimal():
        return JSONResponse({"detail": "Upload-Length says of how many bytes the file is."}, 400)
    upload = site.uploads.begin(name, int(size))
    return JSONResponse({"id": upload.id, "chunk": CHUNK}, 201, {"Location": f"/uploads/{upload.id}", "Upload-Offset": "0"})


@router.head("/{id}")
def look(site: At, id: str) -> Response:
    upload = site.uploads.records.upload(id)
    if upload is None:
        return Response(status_code=404)
    return Response(headers={"Upload-Offset": str(site.uploads.offset(upload)), "Upload-Length": str(upload.size)})


@router.patch("/{id}")
async def go_on(site: At, id: str, request: Request) -> Response:
    upload, said = site.uploads.records.upload(id), request.headers.get("upload-offset", "")
    if upload is None:
        return JSONResponse({"detail": "There is no such upload any more."}, 404)
    offset = site.uploads.offset(upload)
    if said != str(offset):
        return Response(status_code=409, headers={"Upload-Offset": str(offset)})
    with site.uploads.file(upload.id).open("r+b") as file:
        file.seek(offset)
        received = 0
        async for chunk in request.stream():
            received += len(chunk)
            if received > MOST_CHUNK or offset + received > upload.size:
                file.truncate(offset)
                return JSONResponse({"detail": "That is more than the file was said to have."}, 413)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return Response(status_code=204, headers={"Upload-Offset": str(offset + received)})


@router.delete("/{id}")
def forget(site: At, id: str) -> Response:
    site.uploads.delete(id)
    return Response(status_code=204)
