"""HTTP, below every protocol: the layers around the routes, bodies in, answers out."""
