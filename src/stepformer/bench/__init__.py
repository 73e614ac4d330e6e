"""One measurement of one part of the product a module; each is a command under ``stepformer bench``."""
