"""How the endpoints of a pool are found."""
