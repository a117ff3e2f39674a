"""Other libraries as users of the runtime."""
