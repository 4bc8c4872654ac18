"""HTTP/2 and gRPC framing of a client's streaming calls. Pure: bytes in, events out."""
