"""Reading GGUF model files: the native header walk, typed metadata, tensors and split files."""
