"""The HTTP side of the sandbox: the Kubernetes API's paths, verbs and encodings."""
