"""Tools around model files: quantizing them."""
