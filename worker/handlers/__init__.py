"""Loading the user's function and running it."""
