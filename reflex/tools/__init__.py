"""Tools around model files: quantizing them, and the importance matrices for it."""
