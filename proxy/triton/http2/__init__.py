"""HTTP/2 and gRPC framing for streamed calls, client's side. Pure: bytes in, events out."""
