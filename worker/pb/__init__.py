"""Generated from proto/ by scripts/gen-proto."""
