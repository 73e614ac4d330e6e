"""One measurement per module, each of one part of the product and a command under ``stepformer bench``."""
