"""What this project is made of: hashes of its packages, and its bill of materials."""
