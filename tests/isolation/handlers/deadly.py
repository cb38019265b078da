"""A handler whose import kills its process."""

import os

os.abort()
