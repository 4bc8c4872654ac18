"""uvicorn's front: connections with bounds, slow senders and readers, several workers."""
