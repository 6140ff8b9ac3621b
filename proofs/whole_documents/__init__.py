"""Random whole documents on a private API server with the real controllers, beside what the checker says of them."""
