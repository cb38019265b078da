"""A handler whose import kills or ends its process."""

import os

if os.environ.get("DEADLY") == "exit":
    os._exit(9)
os.abort()
