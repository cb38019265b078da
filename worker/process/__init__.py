"""One worker process: the main loop and the classes that it uses, on the poll thread."""
