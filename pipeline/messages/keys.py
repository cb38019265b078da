"""The key of a request, its answers and its dead letters: ``job/sequence``, with ten digits."""

LARGEST = 2**31 - 1  # the largest sequence, which is an int32 in the messages
# For both Python and Arrow's RE2.
PATTERN = r"^(?P<job>[^/]+)/(?P<sequence>[0-9]{10})$"
