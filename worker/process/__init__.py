"""One worker process: the poll thread, the service thread and what passes between them."""
